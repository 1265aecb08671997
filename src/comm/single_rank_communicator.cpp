#include "comm/single_rank_communicator.h"

#include <atomic>

#include "comm/contract.h"
#include "core/error.h"

namespace plait::comm {
namespace {

class SingleRankCommunicator final : public Communicator {
 public:
  explicit SingleRankCommunicator(std::string name) : name_(std::move(name)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_reduce(StreamRef, View data, Reduction) override {
    check_usable();
    check_reducible(data);
  }
  void reduce(StreamRef, View data, int root, Reduction) override {
    check_usable();
    check_reducible(data);
    check_root(root, 1);
  }
  void reduce_scatter(StreamRef stream, View data, View part, Reduction) override {
    check_usable();
    check_reducible(data);
    check_slices(data, part, 1);
    copy(stream, part, data);
  }
  void all_gather(StreamRef stream, View part, View data) override {
    check_usable();
    check_slices(data, part, 1);
    copy(stream, data, part);
  }
  void broadcast(StreamRef, View, int root) override {
    check_usable();
    check_root(root, 1);
  }
  void all_to_all(StreamRef stream, View send, View receive) override {
    check_usable();
    check_all_to_all(send, receive, 1);
    copy(stream, receive, send);
  }
  // There is no peer, so the check always throws.
  void send(StreamRef, View, int to) override { check_peer(to, 0, 1, true); }
  void receive(StreamRef, View, int from) override { check_peer(from, 0, 1, true); }
  Paths paths() const override { return {}; }
  void abort() noexcept override { aborted_ = true; }

 private:
  void check_usable() const {
    if (aborted_) throw CommError("group '" + name_ + "', rank 0 of 1: aborted");
  }
  static void copy(StreamRef stream, const View& to, const View& from) {
    if (to.data != from.data && from.bytes() > 0) stream.copy(to.data, from.data, from.bytes());
  }

  std::string name_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<Communicator> make_single_rank_communicator(const GroupSpec& spec) {
  return std::make_unique<SingleRankCommunicator>(spec.name);
}

}  // namespace plait::comm
