// The facts about a pair of ranks and their devices that the choice of a transport uses: how each end sees itself and the
// other.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/p2p/process_identity.h"
#include "core/choices.h"
#include "core/device.h"
#include "topology/gpu_path.h"

namespace plait::comm::p2p {

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

// JSON for a meeting. Reading throws InvalidWord for anything that to_json does not write.
void to_json(nlohmann::ordered_json& json, const EndFacts& facts);
void from_json(const nlohmann::ordered_json& json, EndFacts& facts);

}  // namespace plait::comm::p2p

template <>
struct nlohmann::adl_serializer<plait::topology::PathFacts, void> {
  static void to_json(nlohmann::ordered_json& json, const plait::topology::PathFacts& facts);
  static void from_json(const nlohmann::ordered_json& json, plait::topology::PathFacts& facts);
};
