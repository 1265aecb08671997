#include "parallel/job_plan.h"

#include "core/error.h"

namespace plait::parallel {
namespace {

ProgramSet program_set(const std::vector<RankPlan>& plans, bool training) {
  require(!plans.empty(), "program_set: at least one rank");
  const RankPlan& first = plans.front();
  ProgramSet set{.layout = first.layout,
                 .last_stage = first.last_stage_rank(),
                 .blocks = first.sizes.shape.blocks(),
                 .micro_batches = training ? first.micro_batches : 1,
                 .zero = first.zero,
                 .tied = first.sizes.shape.tie_embeddings,
                 .training = training,
                 .programs = {},
                 .program_of = {}};
  // Ranks with the same pipeline coordinate run the same program.
  for (const RankPlan& plan : plans) {
    const int pipeline = plan.coordinates().pipeline;
    if (pipeline == static_cast<int>(set.programs.size())) {
      set.programs.push_back({training ? plan.train : plan.evaluate, plan.flat.buckets()});
    }
    set.program_of.push_back(pipeline);
  }
  return set;
}

}  // namespace

std::vector<RankPlan> make_job_plan(const Config& config, std::int64_t vocab, const Layout& layout, DeviceKind device_kind) {
  std::vector<RankPlan> plans;
  for (int rank = 0; rank < layout.ranks(); ++rank) plans.push_back(make_rank_plan(config, vocab, layout, rank, device_kind));
  return plans;
}

ProgramSet training_programs(const std::vector<RankPlan>& plans) { return program_set(plans, true); }
ProgramSet evaluation_programs(const std::vector<RankPlan>& plans) { return program_set(plans, false); }

}  // namespace plait::parallel
