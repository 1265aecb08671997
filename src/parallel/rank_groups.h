// The communicators of one rank.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/make_communicator.h"
#include "parallel/rank_plan.h"

namespace plait::parallel {

struct RankGroups {
  std::shared_ptr<comm::Communicator> tensor, data, tied, world;
  // One per direction and pipeline rank that this rank exchanges messages with: pairs in which rank 0 sends.
  std::map<int, std::shared_ptr<comm::Communicator>> outgoing, incoming;

  comm::Communicator& of(Group group) const;
  std::vector<std::shared_ptr<comm::Communicator>> all() const;  // each once
};

struct GroupOptions {
  Device device;
  std::chrono::milliseconds timeout{60'000};
  int max_ctas = 0;
  std::string host_interface = "127.0.0.1";
  // For tests: puts something between the interpreter and a group ("tensor", "data", "tied", "world", "link").
  std::function<std::shared_ptr<comm::Communicator>(const std::string& kind, std::shared_ptr<comm::Communicator>)> wrap;
};

// Collective over all ranks of the layout, which make their groups in one order. Groups of the same ranks whose collectives are
// on the same stream are one communicator.
RankGroups make_groups(const RankPlan& plan, const GroupOptions& options, comm::Rendezvous& store);

}  // namespace plait::parallel
