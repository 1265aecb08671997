// A point whose ranks are on several nodes: a step of the Slurm allocation that this process runs in.
#pragma once

#include <string>
#include <vector>

#include "study/point_process.h"

namespace plait::study {

// ConfigError where this process is in no allocation, or in one of too few nodes for this many ranks; says what to do.
void require_allocation(int ranks, int ranks_per_node);

// `argv`, of this program, as the ranks of one job (launch.mode external, launch.rendezvous tcp): started by srun on the first
// nodes of the allocation, each filled with `ranks_per_node` before the next, so that rank 0 is on this one, where they meet:
// MASTER_ADDR and MASTER_PORT, which are this node and a free port of it unless the environment has them already, and
// PLAIT_TOKEN, made for this step alone. Ranks may use every processor and GPU of the allocation on their node. One that fails
// ends the step. Without output, log and deadline. ConfigError where there is no srun.
ProcessSpec srun_step(const std::vector<std::string>& argv, int ranks, int ranks_per_node);

}  // namespace plait::study
