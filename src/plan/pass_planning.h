// Pass planning for parallel.schedule=planned: from the machine's pass times and memory.
#pragma once

#include <vector>

#include "parallel/rank_plan.h"
#include "parallel/schedule/planned_schedule.h"
#include "plan/evaluation.h"

namespace plait::plan {

// True if the passes of this configuration are to be planned: nobody has done it before.
bool plans_passes(const Config& config, const parallel::Decision& decision);

// The plan of one rank of each pipeline coordinate, with passes listed from the seconds of their segments (pass_seconds.h) and
// of the messages between ranks in their order. Ranks hold as many micro-batches as their memory takes, at most twice the
// number of pipeline ranks: beyond that even the first of them never waits (Qi et al. 2023, ZB-H2). Where not one fits, the
// plan is the smallest there is. The same arguments give the same passes.
std::vector<parallel::RankPlan> plan_passes(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                            const parallel::Layout& layout, const Site& site);

}  // namespace plait::plan
