// The plans of all ranks of a job.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/program/program_set.h"
#include "parallel/rank_plan.h"

namespace plait::parallel {

// By rank. ConfigError as make_rank_plan.
std::vector<RankPlan> make_job_plan(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout,
                                    DeviceKind device_kind);

// Of one rank of each pipeline coordinate, in their order: all others are the same but for their place in the mesh. For jobs of
// thousands of ranks.
std::vector<RankPlan> make_stage_plans(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout,
                                       DeviceKind device_kind);

// The bytes of each rank's memory plan, by rank. `stages`: the plans of one rank per pipeline coordinate, with data and tensor
// rank 0. The other ranks differ from it in one item, the table of the pieces of parameters that AdamW updates, because their
// shards begin and end elsewhere.
std::vector<std::size_t> planned_bytes(const std::vector<RankPlan>& stages);

// The training programs of all ranks, or their evaluation programs, to be proved, timed or drawn together. `plans`: those of
// all ranks, or of one rank per pipeline coordinate; the result is the same.
ProgramSet training_programs(const std::vector<RankPlan>& plans);
ProgramSet evaluation_programs(const std::vector<RankPlan>& plans);

}  // namespace plait::parallel
