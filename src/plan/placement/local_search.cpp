#include "plan/placement/local_search.h"

#include <cmath>
#include <utility>

#include "plan/placement/exact.h"

namespace plait::plan {

double improve(CostModel& model, std::vector<int>& gpu_of_rank, Goal goal, std::int64_t most_costs) {
  const auto better = [goal](double one, double other) {
    if (goal == Goal::cheaper) return one < other * (1 - equal_costs);
    return std::isfinite(one) && (!std::isfinite(other) || one > other * (1 + equal_costs));
  };
  std::vector<int> unused;
  std::vector<bool> used(static_cast<std::size_t>(model.fabric().gpus()), false);
  for (int gpu : gpu_of_rank) used[static_cast<std::size_t>(gpu)] = true;
  for (int gpu = 0; gpu < model.fabric().gpus(); ++gpu) {
    if (!used[static_cast<std::size_t>(gpu)]) unused.push_back(gpu);
  }
  double seconds = model.seconds(gpu_of_rank);
  std::int64_t costs = 1;
  const auto exchange = [&](int& one, int& other) {
    std::swap(one, other);
    const double changed = model.seconds(gpu_of_rank);
    ++costs;
    if (better(changed, seconds)) {
      seconds = changed;
      return true;
    }
    std::swap(one, other);
    return false;
  };
  for (bool changed = true; changed && costs < most_costs;) {
    changed = false;
    for (std::size_t rank = 0; rank < gpu_of_rank.size() && costs < most_costs; ++rank) {
      for (std::size_t other = rank + 1; other < gpu_of_rank.size() && costs < most_costs; ++other)
        changed = exchange(gpu_of_rank[rank], gpu_of_rank[other]) || changed;
      for (std::size_t i = 0; i < unused.size() && costs < most_costs; ++i)
        changed = exchange(gpu_of_rank[rank], unused[i]) || changed;
    }
  }
  return seconds;
}

}  // namespace plait::plan
