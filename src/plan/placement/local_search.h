// Improving a placement step by step: two ranks change places, or one rank moves to a GPU that has none.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/placement/cost.h"

namespace plait::plan {

enum class Goal { cheaper, dearer };  // dearer: for the worst placement that is still possible

// Takes every step that helps, in a fixed order, until none does or `most_costs` placements have been costed. Returns the seconds
// of what `gpu_of_rank` has become.
double improve(CostModel& model, std::vector<int>& gpu_of_rank, Goal goal, std::int64_t most_costs);

}  // namespace plait::plan
