#include "comm/p2p/choice.h"

#include "core/error.h"

namespace plait::comm::p2p {
namespace {

std::string label(const EndFacts& end) {
  const std::string rank = " (rank " + std::to_string(end.rank) + ")";
  return end.kind == DeviceKind::cuda ? "GPU " + end.bus_id + rank : "the CPU" + rank;
}

bool gpus(const PairFacts& facts) { return facts.sender.kind == DeviceKind::cuda && facts.receiver.kind == DeviceKind::cuda; }

// A namespace that /proc does not name counts as equal; the trial will show.
bool differ(const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && a != b; }

// Between hosts only NVLink carries a mailbox, whose memory is named by fabric handles.
std::string no_fabric(const PairFacts& facts) {
  if (!gpus(facts) || (facts.sender.fabric_clique.empty() && facts.receiver.fabric_clique.empty())) return "on different hosts";
  if (!facts.share_fabric())
    return "on different hosts, whose GPUs are not in one NVLink fabric (`nvidia-smi -q`, Fabric: ClusterUUID and CliqueId)";
  for (const EndFacts* end : {&facts.sender, &facts.receiver}) {
    if (!end->fabric) return "on different hosts, and " + label(*end) + " has no fabric handles: " + end->why_no_fabric;
  }
  return "";
}

// Returns the obstacle to any mailbox.
std::string no_mailbox(const PairFacts& facts) {
  if (facts.sender.kind != facts.receiver.kind) return "one end is a GPU, the other a CPU";
  if (!facts.same_host()) {
    if (std::string obstacle = no_fabric(facts); !obstacle.empty()) return obstacle;
  }
  for (const EndFacts* end : {&facts.sender, &facts.receiver}) {
    if (end->kind == DeviceKind::cuda && !end->stream_memory_operations) {
      return label(*end) +
             " has no stream memory operations (cuStreamWriteValue32, cuStreamWaitValue32), with which a mailbox keeps "
             "its order; the driver is too old or the virtual machine's host forbids them";
    }
  }
  return "";
}

// NCCL refuses two ranks of one GPU, and the others' counters are not known by one address (core/enqueued_counters.h).
constexpr const char* device_is_shared =
    "ranks that share a GPU (launch.ranks_per_device) reach each other by direct alone, as threads of one process";
constexpr const char* access_is_off = "comm.peer_access is off";

std::string no_access(const EndFacts& from, const EndFacts& to, const PathFacts& path) {
  if (path.peer_access) return "";
  std::string text = "no peer access from " + label(from) + " to " + label(to) + " (" + path.link();
  if (!path.why_no_access.empty()) text += "; NVML: " + path.why_no_access;
  text += ")";
  if (!path.visible && path.why_no_access.empty()) {
    return text + " is known: the process of rank " + std::to_string(from.rank) +
           " does not see that GPU, and NVML does not say; check CUDA_VISIBLE_DEVICES and the devices that its container "
           "has";
  }
  return text +
         ": ACS on the PCIe bridges, an IOMMU, or a virtual machine without P2P passthrough forbids it; see `plait topo`";
}

std::string no_access(const PairFacts& facts) {
  std::string obstacle = no_access(facts.sender, facts.receiver, facts.from_sender);
  return obstacle.empty() ? no_access(facts.receiver, facts.sender, facts.from_receiver) : obstacle;
}

// File descriptors travel over a Unix socket with an abstract name.
std::string no_descriptors(const PairFacts& facts) {
  if (facts.share_sockets()) return "";
  return "the processes are in different network namespaces, which Unix sockets do not cross; let their containers share the "
         "network (docker --network host, Kubernetes hostNetwork or one pod)";
}

std::string no_vmm(const PairFacts& facts) {
  for (const EndFacts* end : {&facts.sender, &facts.receiver}) {
    if (!end->vmm) {
      return label(*end) +
             " has no virtual memory management with POSIX file descriptors; the driver or the virtual machine's "
             "host does not offer it";
    }
  }
  return facts.sender.fabric && facts.receiver.fabric ? "" : no_descriptors(facts);
}

std::string direct_obstacle(const PairFacts& facts) {
  if (!facts.same_process()) return "in different processes (launch.mode: threads makes all ranks of a host one)";
  return gpus(facts) ? no_access(facts) : "";
}

std::string between_processes(const PairFacts& facts) {
  if (!gpus(facts)) return "for GPUs only";
  return facts.same_process() ? "in one process, where memory needs no handles (direct)" : "";
}

std::string vmm_obstacle(const PairFacts& facts) {
  if (std::string obstacle = between_processes(facts); !obstacle.empty()) return obstacle;
  if (std::string obstacle = no_vmm(facts); !obstacle.empty()) return obstacle;
  return facts.same_host() ? no_access(facts) : "";
}

std::string ipc_obstacle(const PairFacts& facts) {
  if (std::string obstacle = between_processes(facts); !obstacle.empty()) return obstacle;
  const ProcessIdentity &a = facts.sender.process, &b = facts.receiver.process;
  if (differ(a.pid_namespace, b.pid_namespace)) {
    return "the processes are in different PID namespaces, which CUDA's IPC handles do not cross; let their containers share "
           "one "
           "(docker --pid host, Kubernetes hostPID or shareProcessNamespace)";
  }
  if (differ(a.ipc_namespace, b.ipc_namespace)) {
    return "the processes are in different IPC namespaces, which CUDA's IPC handles do not cross; let their containers share "
           "one "
           "(docker --ipc host, Kubernetes hostIPC)";
  }
  return no_access(facts);
}

std::string relay_obstacle(const PairFacts& facts) {
  if (!gpus(facts)) return "for GPUs only";
  if (facts.bridges().empty()) return "no third GPU is seen by both ends' processes and reached by both";
  // The bridge's memory goes through vmm, the counters through host memory.
  if (std::string obstacle = no_vmm(facts); !obstacle.empty()) return obstacle;
  return no_descriptors(facts);
}

std::string host_obstacle(const PairFacts& facts) { return no_descriptors(facts); }

std::string obstacle_to(Transport transport, const PairFacts& facts) {
  if (gpus(facts) && facts.sender.shared && transport != Transport::direct) return device_is_shared;
  if (transport == Transport::nccl) return facts.sender.kind == facts.receiver.kind ? "" : no_mailbox(facts);
  if (std::string obstacle = no_mailbox(facts); !obstacle.empty()) return obstacle;
  if (!facts.same_host() && transport != Transport::vmm) return "on different hosts, where only vmm by fabric handles reaches";
  if (needs_peer_access(transport) && !(facts.sender.peer_access && facts.receiver.peer_access)) return access_is_off;
  switch (transport) {
    case Transport::direct: return direct_obstacle(facts);
    case Transport::vmm: return vmm_obstacle(facts);
    case Transport::ipc: return ipc_obstacle(facts);
    case Transport::relay: return relay_obstacle(facts);
    case Transport::host: return host_obstacle(facts);
    case Transport::nccl: break;
  }
  throw InternalError("a transport that choice.cpp does not know");
}

}  // namespace

std::vector<Candidate> candidates(const PairFacts& facts) {
  std::vector<Candidate> all;
  for (const Transport transport :
       {Transport::direct, Transport::vmm, Transport::ipc, Transport::relay, Transport::host, Transport::nccl}) {
    all.push_back({transport, obstacle_to(transport, facts)});
  }
  return all;
}

std::vector<Transport> choices(const PairFacts& facts, const std::vector<Candidate>& all, std::optional<Transport> wanted) {
  std::vector<Transport> possible;
  std::string obstacle, names;
  for (const Candidate& candidate : all) {
    if (candidate.obstacle.empty()) {
      possible.push_back(candidate.transport);
      names += (names.empty() ? "" : ", ") + to_string(candidate.transport);
    }
    if (candidate.transport == wanted) obstacle = candidate.obstacle;
  }
  const std::string pair = label(facts.sender) + " -> " + label(facts.receiver);
  if (!obstacle.empty()) {
    throw NoTransport(pair + ": comm.p2p=" + to_string(*wanted) + " cannot be used: " + obstacle +
                      (names.empty() ? "" : "; possible here: " + names));
  }
  if (wanted) return {*wanted};
  if (possible.empty()) throw NoTransport(pair + ": no transport can be used: " + all.back().obstacle);
  return possible;
}

std::string obstacle_to_peer_access(const PairFacts& facts) {
  if (!facts.sender.peer_access || !facts.receiver.peer_access) return access_is_off;
  return facts.same_host() && gpus(facts) ? no_access(facts) : no_mailbox(facts);
}

std::string obstacle_to_mailbox(const PairFacts& facts, std::optional<Transport> wanted) {
  const std::string asked_for = wanted ? to_string(*wanted) + " (comm.p2p or comm.p2p_pairs)" : "";
  if (wanted == Transport::nccl) return asked_for + " holds no message until it is taken";
  std::string obstacle;
  for (const Candidate& candidate : candidates(facts)) {
    if (candidate.transport == Transport::nccl || (wanted && candidate.transport != *wanted)) continue;
    if (candidate.obstacle.empty()) return "";
    obstacle = candidate.obstacle;  // of the last one: an obstacle to host memory is an obstacle to all
  }
  return (wanted ? asked_for + " cannot be used: " : "") + obstacle;
}

}  // namespace plait::comm::p2p
