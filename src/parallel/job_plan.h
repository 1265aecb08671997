// The plans of all ranks of a job.
#pragma once

#include <vector>

#include "parallel/program_set.h"
#include "parallel/rank_plan.h"

namespace plait::parallel {

// By rank. ConfigError as make_rank_plan.
std::vector<RankPlan> make_job_plan(const Config& config, std::int64_t vocab, const Layout& layout, DeviceKind device_kind);

// Their training programs, or the evaluation programs, to be proved, timed or drawn together.
ProgramSet training_programs(const std::vector<RankPlan>& plans);
ProgramSet evaluation_programs(const std::vector<RankPlan>& plans);

// The training programs of all ranks from the plan of one rank of each pipeline coordinate, for jobs of thousands of ranks: equal
// to training_programs(make_job_plan(...)). ConfigError as make_rank_plan.
ProgramSet training_programs(const Config& config, std::int64_t vocab, const Layout& layout, DeviceKind device_kind);

}  // namespace plait::parallel
