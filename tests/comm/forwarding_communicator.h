// A communicator that passes everything on: what tests change is overridden.
#pragma once

#include <memory>
#include <utility>

#include "comm/communicator.h"

namespace plait::comm::test {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(StreamRef stream, View data, Reduction reduction) override { inner_->all_reduce(stream, data, reduction); }
  void reduce_scatter(StreamRef stream, View data, View part, Reduction reduction) override {
    inner_->reduce_scatter(stream, data, part, reduction);
  }
  void all_gather(StreamRef stream, View part, View data) override { inner_->all_gather(stream, part, data); }
  void all_to_all(StreamRef stream, View send, View receive) override { inner_->all_to_all(stream, send, receive); }
  void send(StreamRef stream, View data, int to) override { inner_->send(stream, data, to); }
  void receive(StreamRef stream, View data, int from) override { inner_->receive(stream, data, from); }
  Paths paths() const override { return inner_->paths(); }
  void abort() noexcept override { inner_->abort(); }

 protected:
  const std::shared_ptr<Communicator> inner_;
};

}  // namespace plait::comm::test
