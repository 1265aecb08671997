// By which ways what the ranks of a job send to each other goes, and whether it may (comm.require).
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/p2p/facts.h"
#include "core/choices.h"
#include "runtime/rank_groups.h"

namespace plait::runtime {

// Of a communicator of several ranks, or of a link.
struct GroupPaths {
  std::string name;          // what it is for: "tensor", "data, world", "messages"
  std::vector<int> members;  // ranks of the job, in the order of the group; of a link from and to
  comm::Paths paths;         // by ranks of the job
};

// Those of this rank: its communicators, then the links that it sends on.
std::vector<GroupPaths> paths_of(const RankGroups& groups, const parallel::RankPlan& plan);

// What keeps these from being what is required, with the pair and the way out; "" if nothing does.
std::string unmet_requirement(RequiredPath required, const std::vector<GroupPaths>& groups, const comm::p2p::JobFacts& facts);

// Collective over `meeting`, of all ranks: CommError on all of them if some rank has an unmet requirement.
void require_paths(RequiredPath required, const std::vector<GroupPaths>& own, const comm::p2p::JobFacts& facts,
                   comm::Meeting& meeting);

}  // namespace plait::runtime
