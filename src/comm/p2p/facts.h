// The facts about a pair of ranks and their devices that the choice of a transport uses: how each end sees itself and the
// other.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/meeting.h"
#include "comm/word.h"
#include "core/choices.h"
#include "core/device.h"
#include "core/limits.h"
#include "topology/gpu_path.h"

namespace plait::comm::p2p {

// The identity of this process, so that others can tell whether it is the same process, on the same machine, or on another one.
// Equal host, process, start and pid_namespace mean the same process. (Process ids repeat in other PID namespaces, and over
// time.)
struct ProcessIdentity {
  std::string host;           // boot id of the kernel: one running machine, under any name that containers give it
  std::int64_t process = 0;   // in its PID namespace
  std::string start;          // clock ticks from boot to its start
  std::string pid_namespace;  // these three are "" if /proc does not say
  std::string ipc_namespace;
  std::string network_namespace;  // names of Unix sockets are valid within it

  bool is_same_process(const ProcessIdentity& other) const;
  // True on one machine and in one network namespace: each reaches the other's loopback addresses and Unix sockets. Containers
  // of one machine mostly do not, and then count as different hosts. An unknown namespace counts as the same.
  bool shares_network_with(const ProcessIdentity& other) const;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// CommError if /proc lacks the needed entries.
ProcessIdentity this_process();

using topology::PathFacts;

// One rank's device as its own process sees it, and the data that another process needs to find it: an ordinal is valid only in
// the process that assigned it.
struct EndFacts {
  int rank = 0;
  ProcessIdentity process;
  DeviceKind kind = DeviceKind::host;
  int ordinal = 0;     // in its own process
  std::string bus_id;  // "0000:1b:00.0"; empty for CPUs
  std::string name;
  bool vmm = false;     // virtual memory management with POSIX file descriptors
  bool fabric = false;  // fabric handles (multi-node NVLink), probed by making one
  std::string why_no_fabric;
  std::string fabric_clique;             // clique of NVLink between hosts; GPUs with equal ones reach each other. Empty: none
  bool peer_access = true;               // false: comm.peer_access is off
  bool stream_memory_operations = true;  // GPUs: probed by a write and a wait
  bool shared = false;                   // Device::shared
  friend bool operator==(const EndFacts&, const EndFacts&) = default;
};

struct PairFacts {
  EndFacts sender, receiver;
  PathFacts from_sender, from_receiver;
  bool same_host() const { return sender.process.host == receiver.process.host; }
  // One NVLink fabric joins the two GPUs, also if they are on different hosts.
  bool share_fabric() const { return !sender.fabric_clique.empty() && sender.fabric_clique == receiver.fabric_clique; }
  // Both see the same Unix sockets, which pass file descriptors.
  bool share_sockets() const { return sender.process.shares_network_with(receiver.process); }
  bool same_process() const { return sender.process.is_same_process(receiver.process); }
  // Each end can, and is allowed to, reach the other's memory.
  bool peer_access() const;
  // The connection between the two, from the end that knows more: when threads ask at once, NVML sometimes finds no lanes.
  std::string link() const;
  int nvlinks() const;
  // GPUs that both ends reach, in the same order on both: those with more lanes on their narrower side first (NVLinks before
  // PCIe), of these the ones with the better performance rank.
  std::vector<std::string> bridges() const;
  std::vector<std::string> best_bridges() const;  // the first of them, and those that are as good
};

// Facts about this process and its device, which must be current on the calling thread.
EndFacts end_facts(int rank, Device device, PeerAccessUse access = PeerAccessUse::automatic);
// `from` is an end of this process.
PathFacts path_facts(const EndFacts& from, const EndFacts& to);

// The words in which ranks report their devices and the ways between them.
struct IsGpuRule {
  DeviceKind read(const JsonField& field) const { return field.flag() ? DeviceKind::cuda : DeviceKind::host; }
  bool write(DeviceKind kind) const { return kind == DeviceKind::cuda; }
};

void declare(auto& field, Of<EndFacts> auto& facts) {
  field("rank", facts.rank, record::whole(0, limits::ranks.most));
  field("host", facts.process.host);
  field.check(!facts.process.host.empty(), "host", "must not be empty");
  field("process", facts.process.process, record::whole(1));
  field("start", facts.process.start);
  field("pid_namespace", facts.process.pid_namespace);
  field("ipc_namespace", facts.process.ipc_namespace);
  field("network_namespace", facts.process.network_namespace);
  field("gpu", facts.kind, IsGpuRule());
  const bool gpu = facts.kind == DeviceKind::cuda;
  field("ordinal", facts.ordinal, record::whole(0, gpu ? 1 << 12 : limits::ranks.most));
  field("bus_id", facts.bus_id);
  field.check(gpu ? bus_id_from(facts.bus_id) == facts.bus_id : facts.bus_id.empty(), "bus_id",
              gpu ? "must be a PCI address" : "must be empty: the device is not a GPU");
  field("name", facts.name);
  field("vmm", facts.vmm);
  field("fabric", facts.fabric);
  field("why_no_fabric", facts.why_no_fabric);
  field("fabric_clique", facts.fabric_clique);
  field("peer_access", facts.peer_access);
  field("stream_memory_operations", facts.stream_memory_operations);
  field("shared", facts.shared);
}

}  // namespace plait::comm::p2p

namespace plait::topology {

inline constexpr record::Whole performance_ranks = record::whole(0, 1 << 12), nvlink_lanes = record::whole(0, 1 << 10);

void declare(auto& field, Of<Bridge> auto& bridge) {
  field("bus_id", bridge.bus_id);
  field.check(bus_id_from(bridge.bus_id) == bridge.bus_id, "bus_id", "must be a PCI address");
  field("nvlinks", bridge.nvlinks, nvlink_lanes);
  field("performance_rank", bridge.performance_rank, performance_ranks);
}

void declare(auto& field, Of<PathFacts> auto& facts) {
  constexpr std::array<std::string_view, 7> pcie_paths = {"", "board", "PIX", "PXB", "PHB", "NODE", "SYS"};
  field("visible", facts.visible);
  field("same_memory", facts.same_memory);
  field("peer_access", facts.peer_access);
  field("why_no_access", facts.why_no_access);
  field("native_atomics", facts.native_atomics);
  field("performance_rank", facts.performance_rank, performance_ranks);
  field("nvlinks", facts.nvlinks, nvlink_lanes);
  field("nvswitch", facts.nvswitch);
  field("pcie_path", facts.pcie_path);
  field.check(std::ranges::find(pcie_paths, facts.pcie_path) != pcie_paths.end(), "pcie_path", "must be a known path");
  field("bridges", facts.bridges, record::at_most(64));
}

}  // namespace plait::topology

namespace plait::comm::p2p {

// Facts about GPUs from CUDA and NVML. Private to src/comm/p2p. Defined in cuda/; a build without CUDA uses no_cuda.cpp, which
// throws DeviceError.

void describe_gpu(Device device, EndFacts& facts);

class JobFacts {
 public:
  // Collective over the meeting, whose members are the ranks from 0 on. `device`: this rank's, current on the calling thread.
  JobFacts(Device device, PeerAccessUse access, Meeting& meeting);
  // Made from given facts: `paths` by rank, and by the other rank of the host.
  JobFacts(std::vector<EndFacts> ends, std::vector<std::map<int, PathFacts>> paths)
      : ends_(std::move(ends)), paths_(std::move(paths)) {}

  int ranks() const { return static_cast<int>(ends_.size()); }
  const EndFacts& end(int rank) const { return ends_[static_cast<std::size_t>(rank)]; }
  bool same_host(int a, int b) const { return end(a).process.host == end(b).process.host; }
  PairFacts pair(int from, int to) const;  // for ranks on two hosts only the facts of the ends

 private:
  std::vector<EndFacts> ends_;
  std::vector<std::map<int, PathFacts>> paths_;  // [from][to], of one host
};

}  // namespace plait::comm::p2p
