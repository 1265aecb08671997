// A lower bound on the cost of any placement; printed beside placements that no exact search found.
//
// At every bandwidth b, the pairs wider than b form components (NVLink groups, hosts). If all groups of a set of axes are
// inside such components, so are the blocks that these axes span together. Where those blocks do not fit, at least one axis has
// a group or a pipeline that crosses a way of at most b. A group on several hosts may have as many rings
// (topology/host_rings.h) as it has members on each; the members that one axis has there take room from the others. The bound
// takes the best set of axes to keep inside, each at the best it could have alone, and the best numbers of members for the
// rest; and of all b the highest result. Latencies are the lowest in the fabric, and channels are not shared.
#pragma once

#include "plan/placement/cost.h"

namespace plait::plan {

// Returns seconds. Needs no table of all pairs: only one host of each shape is looked at, and hosts with more than 64 GPUs
// count as one component.
double placement_lower_bound(CostModel& model);

}  // namespace plait::plan
