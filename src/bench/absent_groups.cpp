#include "bench/absent_groups.h"

#include <algorithm>

#include "comm/single_rank_communicator.h"
#include "core/error.h"

namespace plait::bench {
namespace {

class AbsentLink final : public comm::p2p::Link {
 public:
  AbsentLink(DeviceMemory& memory, std::size_t bytes) : message_(memory.allocate(bytes)) {}

  void send(StreamRef stream, View data, int) override { stream.copy(message_.data(), data.data, data.bytes()); }
  void receive(StreamRef stream, View data, Event* announced, int) override {
    if (announced) stream.record(*announced);
    stream.copy(data.data, message_.data(), data.bytes());
  }
  void post(StreamRef) override {}
  const std::vector<comm::p2p::Place>& places() const override { return places_; }
  std::byte* memory_of(int) const override { throw InternalError("AbsentLink: has no places"); }
  bool announces() const override { return true; }
  std::size_t holds() const override { return message_.bytes(); }
  void abort() noexcept override {}

 private:
  Buffer message_;
  std::vector<comm::p2p::Place> places_;
};

}  // namespace

AbsentGroups absent_groups(const parallel::RankPlan& plan, DeviceMemory& memory) {
  AbsentGroups absent;
  runtime::RankGroups& groups = absent.groups;
  const auto group = [&](parallel::Group which) -> std::shared_ptr<comm::Communicator> {
    const std::vector<int> members = plan.members(which);
    const int size = static_cast<int>(members.size());
    const auto mine = std::find(members.begin(), members.end(), plan.rank);
    // Of the first and the last stage: a rank of neither is alone.
    if (size > 1 && mine != members.end()) {
      absent.communicators.push_back(
          std::make_shared<comm::AbsentCommunicator>(static_cast<int>(mine - members.begin()), size));
      return absent.communicators.back();
    }
    return comm::make_single_rank_communicator({.name = "alone", .rank = 0, .size = 1, .device = memory.device()});
  };
  groups.tensor = group(parallel::Group::tensor), groups.data = group(parallel::Group::data);
  groups.tied = group(parallel::Group::tied), groups.world = group(parallel::Group::world);
  const auto bytes = static_cast<std::size_t>(plan.sizes.own_rows() * plan.sizes.shape.hidden) * size_of(plan.sizes.compute);
  for (const parallel::Program* program : {&plan.train, &plan.evaluate}) {
    for (const parallel::StreamSpec& stream : program->streams) {
      if (stream.peer < 0) continue;
      auto& ends = stream.role == parallel::StreamRole::send ? groups.outgoing : groups.incoming;
      if (ends.contains(stream.peer)) continue;
      groups.links.push_back(std::make_shared<AbsentLink>(memory, bytes));
      ends[stream.peer] = groups.links.back().get();
    }
  }
  return absent;
}

}  // namespace plait::bench
