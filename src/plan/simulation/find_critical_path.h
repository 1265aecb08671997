// Finds the critical path of a step in the times of a run (plan/simulation/critical_path.h says what it is).
#pragma once

#include <vector>

#include "plan/simulation/critical_path.h"
#include "plan/simulation/engine.h"

namespace plait::plan::simulation {

struct CriticalPath {
  std::vector<CriticalRun> runs;
  CriticalSums sums;
};

// Of the last step of `engine`, which has run. Events of one cause are at the same instant, so causes are found by comparing
// times: equal to the bit.
CriticalPath find_critical_path(const Job& job, const Classes& classes, const Engine& engine);

}  // namespace plait::plan::simulation
