#include "plan/placement/local_search.h"

#include <algorithm>
#include <cmath>
#include <random>
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

namespace {

// A placement changed by random steps; the last step can be taken back.
class RandomWalk {
 public:
  RandomWalk(const parallel::Layout& layout, int gpus, const std::vector<int>& gpu_of_rank)
      : layout_(layout), current_(gpu_of_rank) {
    std::vector<bool> used(static_cast<std::size_t>(gpus), false);
    for (int gpu : gpu_of_rank) used[static_cast<std::size_t>(gpu)] = true;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (!used[static_cast<std::size_t>(gpu)]) unused_.push_back(gpu);
    }
  }

  const std::vector<int>& current() const { return current_; }

  void step(std::mt19937_64& random) {
    before_ = current_;
    unused_before_ = unused_;
    const std::size_t kind = random() % 4;
    if (layout_.size(stage_axis) > 2 && kind < 2) {
      along_the_pipeline(random, kind == 0);
      return;
    }
    const std::size_t one = random() % current_.size(), other = random() % (current_.size() + unused_.size());
    std::swap(current_[one], other < current_.size() ? current_[other] : unused_[other - current_.size()]);
  }

  void go_back() {
    current_.swap(before_);
    unused_.swap(unused_before_);
  }

 private:
  void along_the_pipeline(std::mt19937_64& random, bool turn) {
    const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
    int first = below(layout_.size(stage_axis)), last = below(layout_.size(stage_axis));
    if (first > last) std::swap(first, last);
    const int copies = layout_.ranks() / layout_.size(stage_axis), chosen = below(2) == 0 ? -1 : below(copies);
    const bool forward = below(2) == 0;
    std::vector<int> stretch(static_cast<std::size_t>(last - first + 1));
    for (int copy = 0; copy < copies; ++copy) {
      if (chosen >= 0 && copy != chosen) continue;
      const auto gpu = [&](int p) -> int& { return current_[static_cast<std::size_t>(p * copies + copy)]; };
      for (int p = first; p <= last; ++p) stretch[static_cast<std::size_t>(p - first)] = gpu(p);
      if (turn)
        std::reverse(stretch.begin(), stretch.end());
      else
        std::rotate(stretch.begin(), forward ? stretch.begin() + 1 : stretch.end() - 1, stretch.end());
      for (int p = first; p <= last; ++p) gpu(p) = stretch[static_cast<std::size_t>(p - first)];
    }
  }

  const parallel::Layout layout_;
  std::vector<int> current_, unused_, before_, unused_before_;
};

}  // namespace

double anneal(CostModel& model, std::vector<int>& gpu_of_rank, std::int64_t steps) {
  // The temperature at first and at last: the increase of the cost, as a share of it, that is accepted with probability 1/e.
  constexpr double hot = 0.1, cold = 1e-3;
  double seconds = model.seconds(gpu_of_rank), best = seconds;
  if (steps < 1 || !std::isfinite(seconds)) return seconds;
  RandomWalk walk(model.traffic().layout, model.fabric().gpus(), gpu_of_rank);
  std::mt19937_64 random(20240229);
  const double cooling = std::pow(cold / hot, 1.0 / static_cast<double>(steps));
  double temperature = hot;
  for (std::int64_t step = 0; step < steps; ++step, temperature *= cooling) {
    walk.step(random);
    const double changed = model.seconds(walk.current());
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    if (changed <= seconds || std::log(uniform) < (seconds - changed) / (temperature * seconds)) {
      seconds = changed;
      if (seconds < best * (1 - equal_costs)) best = seconds, gpu_of_rank = walk.current();
    } else {
      walk.go_back();
    }
  }
  return best;
}

}  // namespace plait::plan
