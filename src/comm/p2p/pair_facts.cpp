#include "comm/p2p/pair_facts.h"

#include <algorithm>

#include "comm/p2p/gpu_facts.h"
#include "comm/word.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

struct JoinedBridge {
  std::string bus_id;
  int nvlinks = 0, performance_rank = 0;  // of its worse side

  bool is_better_than(const JoinedBridge& other) const {
    return nvlinks != other.nvlinks ? nvlinks > other.nvlinks : performance_rank < other.performance_rank;
  }
};

std::vector<JoinedBridge> bridges_of_both(const PairFacts& facts) {
  std::vector<JoinedBridge> both;
  for (const topology::Bridge& one : facts.from_sender.bridges) {
    const auto& others = facts.from_receiver.bridges;
    const auto other =
        std::find_if(others.begin(), others.end(), [&](const topology::Bridge& b) { return b.bus_id == one.bus_id; });
    if (other == others.end()) continue;
    both.push_back(
        {one.bus_id, std::min(one.nvlinks, other->nvlinks), std::max(one.performance_rank, other->performance_rank)});
  }
  std::stable_sort(both.begin(), both.end(), [](const JoinedBridge& x, const JoinedBridge& y) { return x.is_better_than(y); });
  return both;
}

}  // namespace

std::string PairFacts::link() const {
  return from_receiver.nvlinks > from_sender.nvlinks ? from_receiver.link() : from_sender.link();
}

bool PairFacts::peer_access() const {
  return sender.peer_access && receiver.peer_access && from_sender.peer_access && from_receiver.peer_access;
}

int PairFacts::nvlinks() const { return std::max(from_sender.nvlinks, from_receiver.nvlinks); }

std::vector<std::string> PairFacts::bridges() const {
  std::vector<std::string> both;
  for (const JoinedBridge& bridge : bridges_of_both(*this)) both.push_back(bridge.bus_id);
  return both;
}

std::vector<std::string> PairFacts::best_bridges() const {
  const std::vector<JoinedBridge> all = bridges_of_both(*this);
  std::vector<std::string> best;
  for (const JoinedBridge& bridge : all) {
    if (!all.front().is_better_than(bridge)) best.push_back(bridge.bus_id);
  }
  return best;
}

EndFacts end_facts(int rank, Device device, PeerAccessUse access) {
  EndFacts facts;
  facts.rank = rank;
  facts.process = this_process();
  facts.kind = device.kind;
  facts.ordinal = device.index;
  facts.peer_access = access == PeerAccessUse::automatic;
  facts.name = as_field(device_name(device));
  if (device.is_cuda()) describe_gpu(device, facts);
  return facts;
}

PathFacts path_facts(const EndFacts& from, const EndFacts& to) {
  PathFacts facts;
  if (from.process.host != to.process.host || from.kind != to.kind) return facts;
  if (from.kind == DeviceKind::cuda) {
    facts = topology::gpu_path(from.ordinal, from.bus_id, to.bus_id);
    facts.why_no_access = as_field(facts.why_no_access);
    return facts;
  }
  facts.visible = facts.same_memory = facts.peer_access = facts.native_atomics = true;
  return facts;
}

}  // namespace plait::comm::p2p
