// What is known about a pair of ranks and their devices before a transport is chosen: each end's view of itself and the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/p2p/process_identity.h"
#include "core/device.h"

namespace plait::comm::p2p {

// One rank's device, as its own process sees it. What another process needs to find it again is here: ordinals mean something
// only to the process that counts them.
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
  bool stream_memory_operations = true;  // GPUs: probed by a write and a wait
  friend bool operator==(const EndFacts&, const EndFacts&) = default;
};

// How one end's device gets to the other's. What CUDA does not tell about a GPU that this process does not see
// (CUDA_VISIBLE_DEVICES) is NVML's word, and otherwise unknown.
struct PathFacts {
  bool visible = false;       // to this end's process
  bool same_memory = false;   // CPUs of one host, or one GPU
  bool peer_access = false;   // cudaDeviceCanAccessPeer; of an unseen GPU, what NVML says
  std::string why_no_access;  // what NVML says of it; "" when there is access or NVML does not know
  bool native_atomics = false;
  int performance_rank = 0;  // cudaDevP2PAttrPerformanceRank, 0 the best
  int nvlinks = 0;           // lanes of this GPU that lead to the other or to a switch that the other is at too
  bool nvswitch = false;
  std::string pcie_path;  // "PIX", "PXB", "PHB", "NODE", "SYS" as nvidia-smi names them, "board"; "" when unknown
  // Bus ids of further GPUs of which this end's process knows that this end's GPU, and the other if seen, reaches them. A
  // bridge is in the lists of both ends.
  std::vector<std::string> bridges;
  std::string link() const;  // "NV18 (switch)", "NV4", "PHB", "same memory", "unknown"
  friend bool operator==(const PathFacts&, const PathFacts&) = default;
};

struct PairFacts {
  EndFacts sender, receiver;
  PathFacts from_sender, from_receiver;
  bool same_host() const { return sender.process.host == receiver.process.host; }
  bool same_process() const { return sender.process.is_same_process(receiver.process); }
  // What joins the two, by the end that knows more: asked by several threads at once, NVML at times finds no lane of a GPU.
  std::string link() const;
  int nvlinks() const;
  std::vector<std::string> bridges() const;  // GPUs that both ends reach, in an order that both ends agree on
};

// Of this process and its device, which must be current on the calling thread.
EndFacts end_facts(int rank, Device device);
// `from` is an end of this process.
PathFacts path_facts(const EndFacts& from, const EndFacts& to);

// As text for a rendezvous; parsing throws CommError on anything that is not what was written.
std::string to_text(const EndFacts& facts);
std::string to_text(const PathFacts& facts);
EndFacts end_facts_from(const std::string& text);
PathFacts path_facts_from(const std::string& text);

}  // namespace plait::comm::p2p
