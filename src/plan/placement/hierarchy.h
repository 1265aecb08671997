// Placements on clusters too large for an exact search: the mesh axes nested into the levels of the machine.
//
// The machine is contracted from the inside out: GPUs that NVLink joins, the NUMA nodes of a host, hosts, hosts attached to the
// same switches. This orders the GPUs so that neighbours are near each other. A layout is laid along the order with one axis
// innermost, the next around it, and so on. Every nesting of the axes is costed, with blocks that straddle two units only where
// that cannot be avoided, and with the pipeline as it is or folded so that its first and last ranks are near each other. Within
// hosts whose GPUs are not all equally far apart, the ranks are then placed exactly.
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

// The placement `rank r on GPU r` is among the candidates, and taken if none is better. The same input gives the same
// placement. With up to 64 ranks, local search improves the best ones; `annealing_steps` of it are random, 0 for none.
HierarchyResult hierarchical_placement(CostModel& model, std::int64_t annealing_steps);
inline constexpr std::int64_t annealing_steps_alone = 20'000;  // if no exact search follows

// All candidates before refinement, without duplicates.
std::vector<std::vector<int>> nested_placements(topology::Fabric& fabric, const Traffic& traffic);

}  // namespace plait::plan
