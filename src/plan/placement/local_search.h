// Improves a placement step by step: two ranks change places, or one rank moves to a GPU that has none.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/placement/cost.h"

namespace plait::plan {

enum class Goal { cheaper, costlier };  // costlier: for the worst possible placement

// Takes every step that helps, in a fixed order, until none does or `most_costs` placements have been costed. Changes
// `gpu_of_rank` and returns its seconds.
double improve(CostModel& model, std::vector<int>& gpu_of_rank, Goal goal, std::int64_t most_costs);

// Simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983): random steps that accept costlier placements less and less often.
// Besides the steps above, a stretch of the pipeline is reversed, or one of its ranks moved along it, in one copy or in all.
// Leaves the cheapest placement that it met in `gpu_of_rank` and returns its seconds. The same input gives the same placement.
double anneal(CostModel& model, std::vector<int>& gpu_of_rank, std::int64_t steps);

}  // namespace plait::plan
