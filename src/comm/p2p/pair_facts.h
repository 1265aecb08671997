// What is known about a pair of ranks and their devices before a transport is chosen: each end's view of itself and the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"

namespace plait::comm::p2p {

// One rank's device, as its own process sees it. What another process needs to find it again is here: ordinals mean something
// only to the process that counts them.
struct EndFacts {
  int rank = 0;
  std::string host;          // boot id and network namespace-independent name: equal on one running machine
  std::int64_t process = 0;
  std::string process_start; // tells two processes of one number (in different PID namespaces) apart
  DeviceKind kind = DeviceKind::host;
  int ordinal = 0;           // in its own process
  std::string bus_id;        // "0000:1b:00.0"; empty for CPUs
  std::string name;
  bool vmm = false;          // virtual memory management with POSIX file descriptors
  bool fabric = false;       // fabric handles (multi-node NVLink), probed by making one
  std::string why_no_fabric;
  bool stream_memory_operations = true;
};

// How one end's device gets to the other's. "Unseen" where that process cannot see the other's GPU (CUDA_VISIBLE_DEVICES).
struct PathFacts {
  bool visible = false;
  bool peer_access = false;         // cudaDeviceCanAccessPeer
  bool native_atomics = false;
  int performance_rank = 0;         // cudaDevP2PAttrPerformanceRank, 0 the best
  int nvlinks = 0;                  // lanes of this GPU that lead to the other or to a switch
  bool nvswitch = false;
  std::string pcie_path;            // "PIX", "PXB", "PHB", "NODE", "SYS" as nvidia-smi names them; "" when unknown
  std::vector<std::string> bridges; // bus ids of further GPUs that reach both
  std::string link() const;         // "NV18 (switch)", "PHB", "same memory", "unknown"
};

struct PairFacts {
  EndFacts sender, receiver;
  PathFacts from_sender, from_receiver;
  bool same_host() const { return sender.host == receiver.host; }
  bool same_process() const;
};

EndFacts end_facts(int rank, Device device);
PathFacts path_facts(const EndFacts& from, const EndFacts& to);

// As text for a rendezvous; parsing throws CommError on anything that is not what was written.
std::string to_text(const EndFacts& facts);
std::string to_text(const PathFacts& facts);
EndFacts end_facts_from(const std::string& text);
PathFacts path_facts_from(const std::string& text);

}  // namespace plait::comm::p2p
