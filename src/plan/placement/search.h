// The search for a placement: which rank goes on which GPU, as cheaply as possible (cost.h) or as asked for.
//
// Up to 16 GPUs the search is exact (exact.h). On machines with little symmetry and much sharing it can take too long, so it
// may stop after a number of nodes, and says so. On more GPUs, ranks are laid along the levels of the machine (hierarchy.h).
// Either way the answer comes with a lower bound (lower_bound.h), which equals the cost after a finished exact search. With
// more GPUs than ranks, the answer also selects the GPUs. Among equally cheap placements an exact search takes the
// lexicographically smallest list of GPUs, so rank r is on GPU r where nothing is better. The same machine and traffic give the
// same answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/placement/cost.h"
#include "plan/placement/symmetry.h"

namespace plait::plan {

struct PlacementOptions {
  PlacementStrategy strategy = PlacementStrategy::automatic;
  std::vector<int> given;               // by rank, for PlacementStrategy::given
  int exact_up_to_gpus = 16;            // 0 to 16
  std::int64_t most_nodes = 2'000'000;  // of an exact search, which stops there and says so
  bool with_worst = false;              // also find the worst placement
};

struct WorstPlacement {
  std::vector<int> gpu_of_rank;
  PlacementCost cost;
  std::string method;  // "exact" (up to 8 GPUs), or "local search"
};

struct PlacementResult {
  std::vector<int> gpu_of_rank;
  PlacementCost cost;          // not possible() if no placement connects all ranks that communicate
  std::string method;          // "exact", "exact search, stopped", "hierarchical", "order", "worst, exact", "explicit", ...
  std::int64_t looked_at = 0;  // nodes of an exact search, or placements costed
  double lower_bound = 0;      // seconds, of all placements; the cost if the method is "exact"
  PlacementCost order;         // of rank r on GPU r
  std::optional<WorstPlacement> worst;
};

// Problems of a list of GPUs for a layout, one sentence each; empty if the list is valid.
std::vector<std::string> problems_of_placement(const std::vector<int>& gpu_of_rank, const parallel::Layout& layout, int gpus);

// Places many layouts on one machine, and keeps its knowledge of the machine between them.
class Placer {
 public:
  // `fabric` must outlive this. Not thread-safe.
  explicit Placer(topology::Fabric& fabric);

  // ConfigError for more ranks than GPUs and for a given list with problems.
  PlacementResult place(const Traffic& traffic, const PlacementOptions& options = {});

 private:
  PlacementResult best(CostModel& model, const PlacementOptions& options);
  WorstPlacement worst(CostModel& model);
  Symmetry& symmetry();

  topology::Fabric& fabric_;
  Rings rings_;
  std::optional<Symmetry> symmetry_;  // made when first needed: it looks at all pairs
};

PlacementResult place(topology::Fabric& fabric, const Traffic& traffic, const PlacementOptions& options = {});

}  // namespace plait::plan
