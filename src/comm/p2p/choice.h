// Chooses the transport of a pair of ranks, and says why not a better one. It uses facts alone, so both ends get the same
// answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/p2p/facts.h"
#include "core/choices.h"
#include "core/error.h"

namespace plait::comm::p2p {

// No transport works for a pair, or the requested one does not.
class NoTransport : public CommError {
 public:
  using CommError::CommError;
};

struct Candidate {
  Transport transport = Transport::nccl;
  // Empty: possible. Otherwise the reason, and what to check ("no peer access between GPU 0 and GPU 2 (PHB): ACS on the PCIe
  // bridges, an IOMMU, or a virtual machine without P2P passthrough forbid it; see `plait topo`").
  std::string obstacle;
};

// All transports, best first: direct, vmm, ipc, relay, host, nccl. (vmm before ipc: an IPC handle opens a whole allocation.)
std::vector<Candidate> candidates(const PairFacts& facts);

// The possible transports in `all` (the candidates for these facts), best first; or only `wanted`. NoTransport with the
// obstacle when `wanted` is impossible.
std::vector<Transport> choices(const PairFacts& facts, const std::vector<Candidate>& all, std::optional<Transport> wanted);

// The reason why at least one GPU cannot write to the other's memory ("" if both can): the obstacle to direct, vmm and ipc.
std::string obstacle_to_peer_access(const PairFacts& facts);

// The reason why these two have no mailbox, or not the wanted one; empty: none is known before a trial.
std::string obstacle_to_mailbox(const PairFacts& facts, std::optional<Transport> wanted);

}  // namespace plait::comm::p2p
