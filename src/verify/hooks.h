// Where a test reaches into the ranks of a layout under verification, to see whether verification finds what it breaks. The
// serial run is never touched. Empty in the product; ranks that are processes have none.
#pragma once

#include <functional>

#include "parallel/rank_plan.h"
#include "runtime/rank_groups.h"

namespace plait::verify {

struct VerifyHooks {
  std::function<void(parallel::RankPlan&)> edit_plan;  // on every rank, before anything is made from the plan
  decltype(runtime::GroupOptions::wrap) wrap;          // around every communicator
};

}  // namespace plait::verify
