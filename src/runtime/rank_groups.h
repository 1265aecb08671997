// The communicators of one rank.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/p2p/link_communicator.h"
#include "parallel/rank_plan.h"

namespace plait::runtime {

// A received buffer among the places of its link.
comm::p2p::PlaceId place_id(const parallel::BufferId& buffer);

struct RankGroups {
  std::map<parallel::GroupStream, std::shared_ptr<comm::Communicator>> communicators;
  std::map<parallel::GroupStream, std::shared_ptr<comm::p2p::LinkCommunicator>> by_links;  // of `communicators`
  // One for each direction in which messages go, in the order in which both ends make them and let go of them.
  std::vector<std::shared_ptr<comm::p2p::Link>> links;
  std::map<int, comm::p2p::Link*> outgoing, incoming;  // of `links`, by pipeline rank at the other end
  std::vector<comm::p2p::LinkReport> reports;          // of the outgoing ones
  std::map<parallel::BufferId, std::byte*> places;     // what messages arrive in without a copy, in the links' memory

  comm::Communicator& of(const parallel::GroupStream& group) const;
  std::byte* symmetric_memory() const;  // the tensor group's; null where it has none
  // Makes whatever waits in any of them go on, to no use. May be called after they are gone.
  std::function<void()> abort_action() const;
};

struct GroupOptions {
  Device device;
  std::chrono::milliseconds timeout{60'000};
  int max_ctas = 0;
  std::string host_interface = "127.0.0.1";
  std::optional<Transport> transport;                             // of links; nothing: the best that works, pair by pair
  std::map<std::pair<int, int>, Transport> pair_transports = {};  // of links between these ranks instead, either way
  std::optional<Mover> mover;
  PeerAccessUse peer_access = PeerAccessUse::automatic;
  RequiredPath require = RequiredPath::none;  // for whoever checks what was made (group_paths.h)
  // Groups are called by what they are for and their first rank, "tensor.0"; links by their ends, "link.0.1".
  comm::CommunicatorMaker make_communicator = comm::make_communicator;
  comm::p2p::LinkMaker make_link = comm::p2p::make_link;
};

// Collective over all ranks of the layout, which make their groups in one order. Groups of the same ranks whose collectives are
// on the same stream are one communicator.
RankGroups make_groups(const parallel::RankPlan& plan, const GroupOptions& options, comm::Rendezvous& store);

}  // namespace plait::runtime
