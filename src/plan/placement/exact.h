// The best of all placements, by branch and bound.
//
// Ranks get their GPUs in ascending order, and each rank tries GPUs in ascending order, so the first of equally cheap
// placements is the lexicographically smallest. A branch is left when its lower bound is too high: placed parts never get
// cheaper, every incomplete group will at best be the best group that can still be made of it, and every unplaced message will
// at best go to the GPUs nearest to its ends. Placements that differ only by GPUs that are alike (symmetry.h), by the numbers
// of the data replicas or by those of the tensor members are tried once.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/placement/cost.h"
#include "plan/placement/symmetry.h"

namespace plait::plan {

inline constexpr int most_exact_gpus = 16;
// Costs within this relative difference are equal.
inline constexpr double equal_costs = 1e-9;

struct ExactResult {
  std::vector<int> gpu_of_rank;  // the start if nothing better was found
  double seconds = 0;
  double lower_bound = 0;  // of all placements; `seconds` when complete
  bool complete = false;   // false: stopped after most_nodes
  std::int64_t nodes = 0;  // GPU assignments tried
};

// `start` is the first upper bound: only better placements replace it. `model` and `symmetry` are of the same fabric, of at
// most most_exact_gpus GPUs and at least one for each rank.
ExactResult exact_placement(CostModel& model, Symmetry& symmetry, const std::vector<int>& start, std::int64_t most_nodes);

}  // namespace plait::plan
