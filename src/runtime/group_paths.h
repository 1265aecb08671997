// The paths by which the ranks of a job send data to each other, and the check that they are allowed (comm.require).
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/p2p/facts.h"
#include "core/choices.h"
#include "runtime/rank_groups.h"

namespace plait::runtime {

// The paths of a communicator of several ranks, or of a link.
struct GroupPaths {
  std::string name;          // its purpose: "tensor", "data, world", "messages"
  std::vector<int> members;  // ranks of the job, in the order of the group; for a link, sender and receiver
  comm::Paths paths;         // by ranks of the job
};

// The paths of this rank: those of its communicators, then those of the links that it sends on.
std::vector<GroupPaths> paths_of(const RankGroups& groups, const parallel::RankPlan& plan);

// The reason why the paths are not as required, with the pair of ranks and the way out; "" if they are.
std::string unmet_requirement(RequiredPath required, const std::vector<GroupPaths>& groups, const comm::p2p::JobFacts& facts);

// Collective over `meeting`, which has all ranks: CommError on all of them if some rank has an unmet requirement.
void require_paths(RequiredPath required, const std::vector<GroupPaths>& own, const comm::p2p::JobFacts& facts,
                   comm::Meeting& meeting);

}  // namespace plait::runtime
