#include "comm/p2p/pair_facts.h"

#include <algorithm>
#include <limits>

#include "comm/p2p/gpu_facts.h"
#include "comm/p2p/text_fields.h"
#include "core/bus_id.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

constexpr std::int64_t most_ranks = 1 << 24, most_devices = 1 << 12, most_nvlinks = 1 << 10, most_bridges = 64;

const std::vector<std::string>& pcie_paths() {
  static const std::vector<std::string> names = {"", "board", "PIX", "PXB", "PHB", "NODE", "SYS"};
  return names;
}

std::string bus_id(FieldReader& fields, const std::string& name) {
  const std::string text = fields.text(name);
  if (bus_id_from(text) != text) fields.refuse(name, "is not a PCI address");
  return text;
}

}  // namespace

std::string PairFacts::link() const {
  return from_receiver.nvlinks > from_sender.nvlinks ? from_receiver.link() : from_sender.link();
}

int PairFacts::nvlinks() const { return std::max(from_sender.nvlinks, from_receiver.nvlinks); }

std::vector<std::string> PairFacts::bridges() const {
  std::vector<std::string> both;
  for (const std::string& bridge : from_sender.bridges) {
    const auto& other = from_receiver.bridges;
    if (std::find(other.begin(), other.end(), bridge) != other.end()) both.push_back(bridge);
  }
  return both;
}

EndFacts end_facts(int rank, Device device) {
  EndFacts facts;
  facts.rank = rank;
  facts.process = this_process();
  facts.kind = device.kind;
  facts.ordinal = device.index;
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

std::string to_text(const EndFacts& facts) {
  FieldWriter fields;
  fields.integer("rank", facts.rank);
  fields.text("host", facts.process.host);
  fields.integer("process", facts.process.process);
  fields.text("start", facts.process.start);
  fields.text("pid_namespace", facts.process.pid_namespace);
  fields.text("ipc_namespace", facts.process.ipc_namespace);
  fields.text("network_namespace", facts.process.network_namespace);
  fields.flag("gpu", facts.kind == DeviceKind::cuda);
  fields.integer("ordinal", facts.ordinal);
  fields.text("bus_id", facts.bus_id);
  fields.text("name", facts.name);
  fields.flag("vmm", facts.vmm);
  fields.flag("fabric", facts.fabric);
  fields.text("why_no_fabric", facts.why_no_fabric);
  fields.flag("stream_memory_operations", facts.stream_memory_operations);
  return fields.written();
}

EndFacts end_facts_from(const std::string& text) {
  FieldReader fields(text, "facts of a rank's device");
  EndFacts facts;
  facts.rank = static_cast<int>(fields.integer("rank", 0, most_ranks));
  facts.process.host = fields.text("host");
  if (facts.process.host.empty()) fields.refuse("host", "is empty");
  facts.process.process = fields.integer("process", 1, std::numeric_limits<std::int64_t>::max());
  facts.process.start = fields.text("start");
  facts.process.pid_namespace = fields.text("pid_namespace");
  facts.process.ipc_namespace = fields.text("ipc_namespace");
  facts.process.network_namespace = fields.text("network_namespace");
  facts.kind = fields.flag("gpu") ? DeviceKind::cuda : DeviceKind::host;
  facts.ordinal = static_cast<int>(fields.integer("ordinal", 0, facts.kind == DeviceKind::cuda ? most_devices : most_ranks));
  facts.bus_id = facts.kind == DeviceKind::cuda ? bus_id(fields, "bus_id") : fields.text("bus_id");
  if (facts.kind == DeviceKind::host && !facts.bus_id.empty()) fields.refuse("bus_id", "is a GPU's, but the device is none");
  facts.name = fields.text("name");
  facts.vmm = fields.flag("vmm");
  facts.fabric = fields.flag("fabric");
  facts.why_no_fabric = fields.text("why_no_fabric");
  facts.stream_memory_operations = fields.flag("stream_memory_operations");
  fields.end();
  return facts;
}

std::string to_text(const PathFacts& facts) {
  FieldWriter fields;
  fields.flag("visible", facts.visible);
  fields.flag("same_memory", facts.same_memory);
  fields.flag("peer_access", facts.peer_access);
  fields.text("why_no_access", facts.why_no_access);
  fields.flag("native_atomics", facts.native_atomics);
  fields.integer("performance_rank", facts.performance_rank);
  fields.integer("nvlinks", facts.nvlinks);
  fields.flag("nvswitch", facts.nvswitch);
  fields.text("pcie_path", facts.pcie_path);
  fields.integer("bridges", static_cast<std::int64_t>(facts.bridges.size()));
  for (const std::string& bridge : facts.bridges) fields.text("bridge", bridge);
  return fields.written();
}

PathFacts path_facts_from(const std::string& text) {
  FieldReader fields(text, "facts of the way between two ranks' devices");
  PathFacts facts;
  facts.visible = fields.flag("visible");
  facts.same_memory = fields.flag("same_memory");
  facts.peer_access = fields.flag("peer_access");
  facts.why_no_access = fields.text("why_no_access");
  facts.native_atomics = fields.flag("native_atomics");
  facts.performance_rank = static_cast<int>(fields.integer("performance_rank", 0, most_devices));
  facts.nvlinks = static_cast<int>(fields.integer("nvlinks", 0, most_nvlinks));
  facts.nvswitch = fields.flag("nvswitch");
  facts.pcie_path = fields.text("pcie_path");
  const auto& paths = pcie_paths();
  if (std::find(paths.begin(), paths.end(), facts.pcie_path) == paths.end()) fields.refuse("pcie_path", "is not a known path");
  const std::int64_t bridges = fields.integer("bridges", 0, most_bridges);
  for (std::int64_t i = 0; i < bridges; ++i) facts.bridges.push_back(bus_id(fields, "bridge"));
  fields.end();
  return facts;
}

}  // namespace plait::comm::p2p
