// The best placement of all, by branch and bound.
//
// Ranks get their GPUs in ascending order, each the GPUs in ascending order, so of placements with the same cost the first one
// found is the lexicographically smallest. A branch is left when what is placed already costs too much: what has been placed
// never gets cheaper, every group that is not complete will at best be the best group that can still be made of it, and every
// message not yet placed will at best go to the nearest GPUs of its ends. Placements that only differ by GPUs that are alike
// (symmetry.h), by the numbers of the data replicas or by those of the tensor members are tried once.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/placement/cost.h"
#include "plan/placement/symmetry.h"

namespace plait::plan {

inline constexpr int most_exact_gpus = 16;
// Costs this close to each other, relatively, are equal.
inline constexpr double equal_costs = 1e-9;

struct ExactResult {
  std::vector<int> gpu_of_rank;  // the start if nothing better was found
  double seconds = 0;
  double lower_bound = 0;  // of all placements; `seconds` when complete
  bool complete = false;   // false: stopped after most_nodes
  std::int64_t nodes = 0;  // assignments of a GPU to a rank that were looked at
};

// `start` is a placement to be better than, at first. `model` and `symmetry` are of the same fabric of at most most_exact_gpus
// GPUs, which has a GPU for every rank.
ExactResult exact_placement(CostModel& model, Symmetry& symmetry, const std::vector<int>& start, std::int64_t most_nodes);

}  // namespace plait::plan
