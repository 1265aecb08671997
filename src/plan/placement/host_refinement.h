// Places the ranks of each host anew among its own GPUs.
#pragma once

#include <vector>

#include "plan/placement/cost.h"

namespace plait::plan {

// Where the ways within a host differ, its ranks get the GPUs that suit their traffic within the host best, found by exact
// search. Traffic to other hosts is ignored, so the result must be costed. Hosts with more than 16 GPUs, and hosts whose ranks
// are no block of the mesh, stay as they are. Hosts that are alike and hold the same pipeline ranks are placed alike, which
// keeps data groups on one rail.
std::vector<int> refine_within_hosts(CostModel& model, const std::vector<int>& gpu_of_rank);

}  // namespace plait::plan
