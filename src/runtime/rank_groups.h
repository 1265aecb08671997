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

// The id of a received buffer among the places of its link.
comm::p2p::PlaceId place_id(const parallel::BufferId& buffer);

struct RankGroups {
  std::map<parallel::GroupStream, std::shared_ptr<comm::Communicator>> communicators;
  std::map<parallel::GroupStream, std::shared_ptr<comm::p2p::LinkCommunicator>> by_links;  // of `communicators`
  // One link for each direction in which messages go, in the order in which both ends make and destroy them.
  std::vector<std::shared_ptr<comm::p2p::Link>> links;
  std::map<int, comm::p2p::Link*> outgoing, incoming;  // of `links`, by the pipeline rank at the other end
  std::vector<comm::p2p::LinkReport> reports;          // those of the outgoing links
  std::map<parallel::BufferId, std::byte*> places;     // memory of links in which messages arrive without a copy

  comm::Communicator& of(const parallel::GroupStream& group) const;
  std::byte* symmetric_memory() const;  // the tensor group's; null where it has none
  // An action that makes everything that waits in any of them go on, without a result. It may be called after they are gone.
  std::function<void()> abort_action() const;
};

struct GroupOptions {
  Device device;
  std::chrono::milliseconds timeout{60'000};
  int max_ctas = 0;
  std::string host_interface = "127.0.0.1";
  std::optional<Transport> transport;                             // for links; nothing: the best that works, pair by pair
  std::map<std::pair<int, int>, Transport> pair_transports = {};  // for links between these ranks instead, either way
  std::optional<Mover> mover;
  PeerAccessUse peer_access = PeerAccessUse::automatic;
  RequiredPath require = RequiredPath::none;  // read by the check of what was made (group_paths.h)
  // Groups are named by their purpose and their first rank, "tensor.0"; links by their ends, "link.0.1".
  comm::CommunicatorMaker make_communicator = comm::make_communicator;
  comm::p2p::LinkMaker make_link = comm::p2p::make_link;
  // Called with each communicator that was made, by links too, and the words for its group; what it returns takes its place.
  std::function<std::shared_ptr<comm::Communicator>(const std::string& group, std::shared_ptr<comm::Communicator> made)>
      replace = [](const std::string&, std::shared_ptr<comm::Communicator> made) { return made; };
};

// Makes the groups of a rank. Collective over all ranks of the layout, which make their groups in one order. Groups of the same
// ranks whose collectives are on the same stream are one communicator.
RankGroups make_groups(const parallel::RankPlan& plan, const GroupOptions& options, comm::Rendezvous& store);

}  // namespace plait::runtime
