#include "plan/placement/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/format.h"
#include "plan/placement/exact.h"
#include "plan/placement/hierarchy.h"
#include "plan/placement/local_search.h"
#include "plan/placement/lower_bound.h"

namespace plait::plan {
namespace {

constexpr int most_gpus_for_exact_worst = 8;
constexpr int few_gpus = 10;
constexpr std::int64_t annealing_before_exact = 4'000;
constexpr std::int64_t rank_costs_for_worst = 400'000;  // ranks × placements costed

std::vector<int> identity(int ranks) {
  std::vector<int> gpu_of_rank(static_cast<std::size_t>(ranks));
  std::iota(gpu_of_rank.begin(), gpu_of_rank.end(), 0);
  return gpu_of_rank;
}

// Costs every placement that is not equivalent to an earlier one, and keeps the costliest.
class WorstSearch {
 public:
  WorstSearch(CostModel& model, Symmetry& symmetry)
      : model_(model), symmetry_(symmetry), current_(static_cast<std::size_t>(model.traffic().layout.ranks()), -1) {}

  std::vector<int> run() {
    worst_ = identity(static_cast<int>(current_.size()));
    seconds_ = model_.seconds(worst_);
    place(0, 0);
    return worst_;
  }

 private:
  void place(std::size_t rank, std::uint32_t used) {
    if (rank == current_.size()) {
      const double seconds = model_.seconds(current_);
      if (!std::isfinite(seconds) || (std::isfinite(seconds_) && seconds <= seconds_ * (1 + equal_costs))) return;
      seconds_ = seconds;
      worst_ = current_;
      return;
    }
    const Symmetry::Alike& alike = symmetry_.alike(used);
    for (int gpu = 0; gpu < model_.fabric().gpus(); ++gpu) {
      if ((used >> gpu & 1U) || alike[static_cast<std::size_t>(gpu)] != gpu) continue;
      current_[rank] = gpu;
      place(rank + 1, used | (1U << gpu));
    }
  }

  CostModel& model_;
  Symmetry& symmetry_;
  std::vector<int> current_, worst_;
  double seconds_ = 0;
};

}  // namespace

Placer::Placer(topology::Fabric& fabric) : fabric_(fabric), rings_(fabric) {}

Symmetry& Placer::symmetry() {
  if (!symmetry_) symmetry_.emplace(fabric_);
  return *symmetry_;
}

std::vector<std::string> problems_of_placement(const std::vector<int>& gpu_of_rank, const parallel::Layout& layout, int gpus) {
  std::vector<std::string> problems;
  if (gpu_of_rank.size() != static_cast<std::size_t>(layout.ranks())) {
    problems.push_back("names " + plural(gpu_of_rank.size(), "GPU") + ", but " + layout.to_string() + " has " +
                       plural(layout.ranks(), "rank") + "; name one GPU for each");
  }
  std::vector<int> rank_on(static_cast<std::size_t>(std::max(gpus, 0)), -1);
  for (std::size_t rank = 0; rank < gpu_of_rank.size(); ++rank) {
    const int gpu = gpu_of_rank[rank];
    const std::string who = "rank " + std::to_string(rank) + " is on GPU " + std::to_string(gpu);
    if (gpu < 0 || gpu >= gpus) {
      problems.push_back(who + ", which does not exist; GPUs are 0 to " + std::to_string(gpus - 1));
    } else if (int& before = rank_on[static_cast<std::size_t>(gpu)]; before >= 0) {
      problems.push_back(who + ", where rank " + std::to_string(before) + " is already; use each GPU once");
    } else {
      before = static_cast<int>(rank);
    }
  }
  return problems;
}

PlacementResult Placer::best(CostModel& model, const PlacementOptions& options) {
  PlacementResult result;
  const bool exactly = fabric_.gpus() <= std::min(options.exact_up_to_gpus, most_exact_gpus);
  // A good start pays off in long searches.
  const std::int64_t annealing = !exactly ? annealing_steps_alone : fabric_.gpus() > few_gpus ? annealing_before_exact : 0;
  HierarchyResult start = hierarchical_placement(model, annealing);
  if (!exactly) {
    result.method = "hierarchical";
    result.looked_at = start.placements;
    result.lower_bound = placement_lower_bound(model);
    result.gpu_of_rank = std::move(start.gpu_of_rank);
    return result;
  }
  ExactResult exact = exact_placement(model, symmetry(), start.gpu_of_rank, options.most_nodes);
  result.method = exact.complete ? "exact" : "exact search, stopped";
  result.looked_at = exact.nodes;
  result.lower_bound = exact.complete ? exact.lower_bound : std::max(exact.lower_bound, placement_lower_bound(model));
  result.gpu_of_rank = std::move(exact.gpu_of_rank);
  return result;
}

WorstPlacement Placer::worst(CostModel& model) {
  WorstPlacement worst;
  if (fabric_.gpus() <= most_gpus_for_exact_worst) {
    worst.method = "exact";
    worst.gpu_of_rank = WorstSearch(model, symmetry()).run();
  } else {
    worst.method = "local search";
    double highest = -1;
    for (const std::vector<int>& placement : nested_placements(fabric_, model.traffic())) {
      const double seconds = model.seconds(placement);
      if (worst.gpu_of_rank.empty() || (std::isfinite(seconds) && seconds > highest)) {
        highest = std::isfinite(seconds) ? seconds : -1;
        worst.gpu_of_rank = placement;
      }
    }
    improve(model, worst.gpu_of_rank, Goal::costlier, rank_costs_for_worst / model.traffic().layout.ranks());
  }
  worst.cost = model.cost(worst.gpu_of_rank);
  return worst;
}

PlacementResult Placer::place(const Traffic& traffic, const PlacementOptions& options) {
  const parallel::Layout& layout = traffic.layout;
  check_traffic(traffic);
  if (layout.ranks() > fabric_.gpus()) {
    throw ConfigError({{"parallel", layout.to_string(),
                        "has " + std::to_string(layout.ranks()) + " ranks, but there are " + std::to_string(fabric_.gpus()) +
                            " GPUs: use fewer ranks or another topology",
                        "", 0}});
  }
  if (options.strategy == PlacementStrategy::given) {
    std::vector<ConfigProblem> problems;
    for (const std::string& problem : problems_of_placement(options.given, layout, fabric_.gpus()))
      problems.push_back({"placement.devices", "[...]", problem, "", 0});
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }
  CostModel model(rings_, traffic);
  PlacementResult result;
  if (options.strategy == PlacementStrategy::automatic) {
    result = best(model, options);
  } else {
    result.lower_bound = placement_lower_bound(model);
    result.looked_at = 1;
  }
  if (options.with_worst || options.strategy == PlacementStrategy::worst) result.worst = worst(model);
  if (options.strategy == PlacementStrategy::worst) {
    result.method = "worst, " + result.worst->method;
    result.gpu_of_rank = result.worst->gpu_of_rank;
  } else if (options.strategy == PlacementStrategy::order) {
    result.method = "order";
    result.gpu_of_rank = identity(layout.ranks());
  } else if (options.strategy == PlacementStrategy::given) {
    result.method = "explicit";
    result.gpu_of_rank = options.given;
  }
  result.cost = model.cost(result.gpu_of_rank);
  result.order = model.cost(identity(layout.ranks()));
  if (result.method == "exact") result.lower_bound = result.cost.seconds;
  return result;
}

PlacementResult place(topology::Fabric& fabric, const Traffic& traffic, const PlacementOptions& options) {
  return Placer(fabric).place(traffic, options);
}

}  // namespace plait::plan
