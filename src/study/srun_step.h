// Runs a point whose ranks are on more than one node: as a step of the Slurm allocation that this process runs in.
#pragma once

#include <string>
#include <vector>

#include "study/point_process.h"

namespace plait::study {

// ConfigError, with the remedy, if this process is in no allocation, or in one with too few nodes for this many ranks.
void require_allocation(int ranks, int ranks_per_node);

// `argv`, of this program, as the ranks of one job (launch.mode external, launch.rendezvous tcp): started by srun on the first
// nodes of the allocation, each filled with `ranks_per_node` before the next, so that rank 0 is on this node. They meet at
// MASTER_ADDR and MASTER_PORT, which are this node and a free port of it unless the environment already has them, with a
// PLAIT_TOKEN made for this step alone. Ranks may use every processor and GPU of the allocation on their node. One that fails
// ends the step. Without output, log and deadline. ConfigError if there is no srun.
ProcessSpec srun_step(const std::vector<std::string>& argv, int ranks, int ranks_per_node);

}  // namespace plait::study
