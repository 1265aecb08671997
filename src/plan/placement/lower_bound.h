// What no placement can be cheaper than: printed beside placements that were not found by an exact search.
//
// At every bandwidth b the pairs wider than b fall into components (NVLink groups, hosts). If all groups of a set of axes are
// inside such components, so are the blocks that these axes span together; where those do not fit, at least one axis has a
// group or a pipeline that goes over a way of at most b. A group on several hosts may have as many rings
// (topology/host_rings.h) as it has members on each; what one axis has there takes room from the others. The bound takes the
// best set of axes to keep inside, each of them at the best it could have alone, and the best numbers of members for the rest;
// and of all b the highest result. Latencies are the least there are, and channels are not shared.
#pragma once

#include "plan/placement/cost.h"

namespace plait::plan {

// Seconds. Needs no table of all pairs: hosts of one shape are looked at once, and hosts with more than 64 GPUs as a whole.
double placement_lower_bound(CostModel& model);

}  // namespace plait::plan
