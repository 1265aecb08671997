#include "bench/absent_groups.h"

#include <algorithm>
#include <random>

#include "comm/communicator.h"
#include "core/error.h"
#include "ops/elementwise.h"

namespace plait::bench {
namespace {

// Fills it with values like those of a message. Products of zeros take less power, so a GPU at its power limit would be too
// fast.
void fill(View message, Device device) {
  constexpr std::int64_t period = std::int64_t{1} << 20;
  std::vector<float> values(static_cast<std::size_t>(std::min(period, message.elements())));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  DeviceMemory memory(device);
  const Buffer buffer = memory.allocate(values.size() * sizeof(float));
  const View floats(buffer.data(), DType::f32, {static_cast<std::int64_t>(values.size())});
  const Stream stream(device);
  stream.ref().copy(floats.data, values.data(), floats.bytes());
  const View flat = message.reshaped({message.elements()});
  for (std::int64_t done = 0; done < flat.elements(); done += floats.elements()) {
    const std::int64_t count = std::min(floats.elements(), flat.elements() - done);
    ops::convert(stream, floats.rows(0, count), flat.rows(done, count));
  }
  stream.ref().synchronize();
}

class AbsentLink final : public comm::p2p::Link {
 public:
  AbsentLink(DeviceMemory& memory, Shape shape, DType type)
      : message_(memory.allocate(static_cast<std::size_t>(shape.elements()) * size_of(type))) {
    fill(View(message_.data(), type, shape), memory.device());
  }

  void send(StreamRef stream, View data, int) override { stream.copy(message_.data(), data.data, data.bytes()); }
  void receive(StreamRef stream, View data, Event* announced, int) override {
    if (announced) stream.record(*announced);
    stream.copy(data.data, message_.data(), data.bytes());
  }
  void await_place(comm::p2p::CounterBatch&) override { no_places(); }
  void mark_sent(comm::p2p::CounterBatch&) override { no_places(); }
  comm::p2p::CountedCopy counted_copy(const void*, std::size_t, int) override { no_places(); }
  void post(comm::p2p::CounterBatch&) override { no_places(); }
  void await_arrival(comm::p2p::CounterBatch&) override { no_places(); }
  void signal(comm::p2p::CounterBatch&) override { no_places(); }
  comm::p2p::CounterValue next_signal() override { no_places(); }
  void await_signal(comm::p2p::CounterBatch&) override { no_places(); }
  const std::vector<comm::p2p::Place>& places() const override { return places_; }
  std::byte* memory_of(int) const override { no_places(); }
  bool announces() const override { return true; }
  std::size_t holds() const override { return message_.bytes(); }
  void abort() noexcept override {}

 private:
  [[noreturn]] static void no_places() { throw InternalError("AbsentLink: has no places"); }

  Buffer message_;
  std::vector<comm::p2p::Place> places_;
};

}  // namespace

runtime::RankGroups absent_groups(const parallel::RankPlan& plan, DeviceMemory& memory) {
  runtime::RankGroups groups;
  const auto group = [&](const parallel::Group& which) -> std::shared_ptr<comm::Communicator> {
    const std::vector<int> members = plan.members(which);
    const int size = static_cast<int>(members.size());
    const auto mine = std::find(members.begin(), members.end(), plan.rank);
    // The group of the first and the last stage: a rank of neither is alone.
    if (size > 1 && mine != members.end())
      return comm::make_absent_communicator(static_cast<int>(mine - members.begin()), size);
    return comm::make_single_rank_communicator({.name = "alone", .rank = 0, .size = 1, .device = memory.device()});
  };
  for (const parallel::GroupStream& kind : parallel::group_streams_of(plan)) groups.communicators[kind] = group(kind.group);
  for (const parallel::Program* program : {&plan.train, &plan.evaluate}) {
    for (const parallel::StreamSpec& stream : program->streams) {
      if (stream.peer < 0) continue;
      auto& ends = stream.role == parallel::StreamRole::send ? groups.outgoing : groups.incoming;
      if (ends.contains(stream.peer)) continue;
      groups.links.push_back(std::make_shared<AbsentLink>(memory, plan.sizes.own_residual(), plan.sizes.compute));
      ends[stream.peer] = groups.links.back().get();
    }
  }
  return groups;
}

}  // namespace plait::bench
