// Finds the critical path of a step (plan/simulation/critical_path.h) in the times of a run.
#pragma once

#include <vector>

#include "plan/simulation/critical_path.h"
#include "plan/simulation/engine.h"

namespace plait::plan::simulation {

struct CriticalPath {
  std::vector<CriticalRun> runs;
  CriticalSums sums;
};

// The path of the last step of `engine`, which has run. A cause ends at the very instant when its effect begins, so times are
// compared for equality to the bit.
CriticalPath find_critical_path(const Job& job, const Classes& classes, const Engine& engine);

}  // namespace plait::plan::simulation
