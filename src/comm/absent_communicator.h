// A group with only one existing rank, to measure that rank's computation without the devices of the others.
#pragma once

#include "comm/communicator.h"

namespace plait::comm {

// Its collectives exchange nothing: this rank's data stand in for everyone's. A gather repeats its part and a reduction keeps
// it, so values stay of ordinary size and about as many bytes move in the device's memory as with peers. A gather is one
// kernel, as a push to all peers is.
class AbsentCommunicator final : public Communicator {
 public:
  AbsentCommunicator(int rank, int size);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(StreamRef stream, View data, Reduction reduction) override;
  void reduce(StreamRef stream, View data, int root, Reduction reduction) override;
  void reduce_scatter(StreamRef stream, View data, View part, Reduction reduction) override;
  std::vector<View> reduce_scatter_addends(StreamRef stream, View data, View part) override;
  void all_gather(StreamRef stream, View part, View data) override;
  void broadcast(StreamRef stream, View data, int root) override;
  void all_to_all(StreamRef stream, View send, View receive) override;
  void send(StreamRef stream, View data, int to) override;       // InternalError: there is no peer
  void receive(StreamRef stream, View data, int from) override;  // InternalError
  Paths paths() const override { return {}; }
  void abort() noexcept override {}

 private:
  const int rank_, size_;
};

}  // namespace plait::comm
