// The memory of one rank: which tensors there are, how large, and when they live.
#pragma once

#include "parallel/rank_plan.h"

namespace plait::parallel {

// Fills `plan.memory` and `plan.tensors`; everything else is there.
void plan_memory(RankPlan& plan);

}  // namespace plait::parallel
