// Placing the ranks of each host anew among its own GPUs.
#pragma once

#include <vector>

#include "plan/placement/cost.h"

namespace plait::plan {

// Where the ways within a host differ, the ranks that are on it get the GPUs of it that are best for what they send each other,
// found by the exact search; ranks that go on from there to other hosts are not looked at, so cost the result. Hosts with more
// than 16 GPUs, and those whose ranks are no block of the mesh, stay as they are. Hosts that are alike and hold the same
// pipeline ranks are placed alike, which keeps data groups on one rail.
std::vector<int> refine_within_hosts(CostModel& model, const std::vector<int>& gpu_of_rank);

}  // namespace plait::plan
