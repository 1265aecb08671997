// The memory of one rank: which tensors there are, how large, and when they live.
#pragma once

#include "parallel/rank_plan.h"

namespace plait::parallel {

// Everything of `plan` but `memory` is filled.
MemoryPlan plan_memory(const RankPlan& plan);

}  // namespace plait::parallel
