// Placements of clusters too large for an exact search: the axes nested into the levels of the machine.
//
// The machine is contracted from the inside out: GPUs that NVLink joins, the NUMA nodes of a host, hosts, hosts that are
// attached to the same switches. So its GPUs come in an order in which neighbours are near each other, and a layout is laid
// along it with one axis innermost, another around it, the third outermost: all six nestings are costed, with blocks that do
// not straddle two units where that can be avoided, and with the pipeline as it is or folded, so that its first and last ranks
// are near each other. Within hosts whose GPUs are not all equally far from each other the ranks are then placed exactly.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/placement/cost.h"

namespace plait::plan {

struct HierarchyResult {
  std::vector<int> gpu_of_rank;
  double seconds = 0;
  std::int64_t placements = 0;  // costed
};

// The placement `rank r on GPU r` is among those tried, and taken if nothing is better. Of the same inputs always the same.
// With up to 64 ranks the best ones are improved by local search; `annealing_steps` of it at random, 0 for none.
HierarchyResult hierarchical_placement(CostModel& model, std::int64_t annealing_steps);
inline constexpr std::int64_t annealing_steps_alone = 20'000;  // where no exact search follows

// All that were tried before they were refined, different ones only.
std::vector<std::vector<int>> nested_placements(topology::Fabric& fabric, const Traffic& traffic);

}  // namespace plait::plan
