#include "comm/p2p/pair_facts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "comm/fields.h"
#include "comm/p2p/gpu_facts.h"
#include "core/bus_id.h"
#include "core/config_limits.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

constexpr std::int64_t most_ranks = limits::ranks.most, most_devices = 1 << 12, most_nvlinks = 1 << 10;
constexpr std::size_t most_bridges = 64;

const std::vector<std::string>& pcie_paths() {
  static const std::vector<std::string> names = {"", "board", "PIX", "PXB", "PHB", "NODE", "SYS"};
  return names;
}

std::string checked_bus_id(std::string text, const char* name) {
  if (bus_id_from(text) != text) Fields::refuse(name, "is not a PCI address");
  return text;
}

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

void to_json(nlohmann::ordered_json& json, const EndFacts& facts) {
  json = {{"rank", facts.rank},
          {"host", facts.process.host},
          {"process", facts.process.process},
          {"start", facts.process.start},
          {"pid_namespace", facts.process.pid_namespace},
          {"ipc_namespace", facts.process.ipc_namespace},
          {"network_namespace", facts.process.network_namespace},
          {"gpu", facts.kind == DeviceKind::cuda},
          {"ordinal", facts.ordinal},
          {"bus_id", facts.bus_id},
          {"name", facts.name},
          {"vmm", facts.vmm},
          {"fabric", facts.fabric},
          {"why_no_fabric", facts.why_no_fabric},
          {"fabric_clique", facts.fabric_clique},
          {"peer_access", facts.peer_access},
          {"stream_memory_operations", facts.stream_memory_operations}};
}

void from_json(const nlohmann::ordered_json& json, EndFacts& facts) {
  Fields fields(json);
  facts.rank = static_cast<int>(fields.integer("rank", 0, most_ranks));
  facts.process.host = fields.text("host");
  if (facts.process.host.empty()) Fields::refuse("host", "is empty");
  facts.process.process = fields.integer("process", 1, std::numeric_limits<std::int64_t>::max());
  facts.process.start = fields.text("start");
  facts.process.pid_namespace = fields.text("pid_namespace");
  facts.process.ipc_namespace = fields.text("ipc_namespace");
  facts.process.network_namespace = fields.text("network_namespace");
  facts.kind = fields.flag("gpu") ? DeviceKind::cuda : DeviceKind::host;
  const bool gpu = facts.kind == DeviceKind::cuda;
  facts.ordinal = static_cast<int>(fields.integer("ordinal", 0, gpu ? most_devices : most_ranks));
  facts.bus_id = gpu ? checked_bus_id(fields.text("bus_id"), "bus_id") : fields.text("bus_id");
  if (!gpu && !facts.bus_id.empty()) Fields::refuse("bus_id", "is given, but the device is not a GPU");
  facts.name = fields.text("name");
  facts.vmm = fields.flag("vmm");
  facts.fabric = fields.flag("fabric");
  facts.why_no_fabric = fields.text("why_no_fabric");
  facts.fabric_clique = fields.text("fabric_clique");
  facts.peer_access = fields.flag("peer_access");
  facts.stream_memory_operations = fields.flag("stream_memory_operations");
  fields.end();
}

}  // namespace plait::comm::p2p

void nlohmann::adl_serializer<plait::topology::PathFacts>::to_json(nlohmann::ordered_json& json,
                                                                   const plait::topology::PathFacts& facts) {
  nlohmann::ordered_json bridges = nlohmann::ordered_json::array();
  for (const plait::topology::Bridge& bridge : facts.bridges) {
    bridges.push_back({{"bus_id", bridge.bus_id}, {"nvlinks", bridge.nvlinks}, {"performance_rank", bridge.performance_rank}});
  }
  json = {{"visible", facts.visible},
          {"same_memory", facts.same_memory},
          {"peer_access", facts.peer_access},
          {"why_no_access", facts.why_no_access},
          {"native_atomics", facts.native_atomics},
          {"performance_rank", facts.performance_rank},
          {"nvlinks", facts.nvlinks},
          {"nvswitch", facts.nvswitch},
          {"pcie_path", facts.pcie_path},
          {"bridges", std::move(bridges)}};
}

void nlohmann::adl_serializer<plait::topology::PathFacts>::from_json(const nlohmann::ordered_json& json,
                                                                     plait::topology::PathFacts& facts) {
  using namespace plait::comm;
  Fields fields(json);
  facts.visible = fields.flag("visible");
  facts.same_memory = fields.flag("same_memory");
  facts.peer_access = fields.flag("peer_access");
  facts.why_no_access = fields.text("why_no_access");
  facts.native_atomics = fields.flag("native_atomics");
  facts.performance_rank = static_cast<int>(fields.integer("performance_rank", 0, p2p::most_devices));
  facts.nvlinks = static_cast<int>(fields.integer("nvlinks", 0, p2p::most_nvlinks));
  facts.nvswitch = fields.flag("nvswitch");
  facts.pcie_path = fields.text("pcie_path");
  const auto& paths = p2p::pcie_paths();
  if (std::find(paths.begin(), paths.end(), facts.pcie_path) == paths.end()) Fields::refuse("pcie_path", "is not a known path");
  facts.bridges.clear();
  for (const nlohmann::ordered_json& bridge : fields.list("bridges", p2p::most_bridges)) {
    if (!bridge.is_object()) Fields::refuse("bridges", "has an entry that is not an object");
    Fields of(bridge);
    plait::topology::Bridge found;
    found.bus_id = p2p::checked_bus_id(of.text("bus_id"), "bridges");
    found.nvlinks = static_cast<int>(of.integer("nvlinks", 0, p2p::most_nvlinks));
    found.performance_rank = static_cast<int>(of.integer("performance_rank", 0, p2p::most_devices));
    of.end();
    facts.bridges.push_back(std::move(found));
  }
  fields.end();
}
