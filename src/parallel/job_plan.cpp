#include "parallel/job_plan.h"

#include "core/error.h"

namespace plait::parallel {
namespace {

// Ranks with the same pipeline coordinate run the same program. `plans`: by rank, or of one rank per pipeline coordinate.
ProgramSet program_set(const std::vector<RankPlan>& plans, bool training) {
  require(!plans.empty(), "program_set: at least one rank");
  const RankPlan& first = plans.front();
  ProgramSet set{.layout = first.layout,
                 .ends = first.ends(),
                 .segments = model::segment_kinds(first.sizes.shape),
                 .micro_batches = training ? first.micro_batches : 1,
                 .zero = first.zero,
                 .sequence_parallel = first.sizes.split.sequence_parallel,
                 .recompute = first.sizes.recompute != model::Recompute::none,
                 .fp8 = first.sizes.fp8,
                 .documents = first.sizes.micro_batch.documents,
                 .tied = first.sizes.shape.tie_embeddings,
                 .training = training,
                 .programs = {},
                 .program_of = {}};
  for (const RankPlan& plan : plans) {
    if (plan.coordinates()[Axis::pipeline] != static_cast<int>(set.programs.size())) continue;
    set.programs.push_back({training ? plan.train : plan.evaluate, plan.flat.buckets()});
  }
  for (int rank = 0; rank < first.layout.ranks(); ++rank)
    set.program_of.push_back(first.layout.coordinate(rank, Axis::pipeline));
  return set;
}

}  // namespace

std::vector<RankPlan> make_job_plan(const Config& config, std::int64_t vocab, const Layout& layout, DeviceKind device_kind) {
  std::vector<RankPlan> plans;
  const JobOutline outline = outline_plans(config, vocab, layout, device_kind);
  for (int rank = 0; rank < layout.ranks(); ++rank) plans.push_back(make_rank_plan(config, outline, layout, rank, device_kind));
  return plans;
}

ProgramSet training_programs(const std::vector<RankPlan>& plans) { return program_set(plans, true); }
ProgramSet evaluation_programs(const std::vector<RankPlan>& plans) { return program_set(plans, false); }

std::vector<RankPlan> make_stage_plans(const Config& config, std::int64_t vocab, const Layout& layout, DeviceKind device_kind) {
  std::vector<RankPlan> plans;
  const JobOutline outline = outline_plans(config, vocab, layout, device_kind);
  for (int pipeline = 0; pipeline < layout.size(Axis::pipeline); ++pipeline) {
    plans.push_back(make_rank_plan(config, outline, layout, layout.rank({{Axis::pipeline, pipeline}}), device_kind));
  }
  return plans;
}

}  // namespace plait::parallel
