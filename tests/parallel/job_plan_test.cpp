#include "parallel/job_plan.h"

#include <gtest/gtest.h>

#include "parallel/plan_json.h"

namespace plait::parallel {
namespace {

Config config(std::int64_t data, std::int64_t tensor, std::int64_t pipeline, ScheduleKind schedule, std::int64_t zero) {
  Config config;
  config.model.layers = 6, config.model.hidden = 32, config.model.heads = 4, config.model.vocab = 150, config.model.ffn = 64;
  config.data.sequence_length = 16;
  config.train.micro_batch = 1, config.train.global_batch = 4 * data;
  config.parallel.data = data, config.parallel.tensor = tensor, config.parallel.pipeline = pipeline;
  config.parallel.schedule = schedule, config.parallel.zero = zero;
  config.comm.bucket_mb = 0.02;
  return config;
}

TEST(JobPlan, ProgramsOfOnePlanPerPipelineRankAreThoseOfAllPlans) {
  for (const Config& c : {config(2, 2, 2, ScheduleKind::one_f_one_b, 0), config(3, 1, 4, ScheduleKind::gpipe, 2),
                          config(2, 2, 3, ScheduleKind::zb_v, 1), config(4, 2, 1, ScheduleKind::one_f_one_b, 1)}) {
    const Layout layout =
        resolve_layout(c.parallel, static_cast<int>(c.parallel.data * c.parallel.tensor * c.parallel.pipeline));
    SCOPED_TRACE(layout.to_string() + ", " + schedule_name(c.parallel));
    const std::vector<RankPlan> plans = make_job_plan(c, 150, layout, DeviceKind::host);
    const ProgramSet all = training_programs(plans),
                     few = training_programs(make_stage_plans(c, 150, layout, DeviceKind::host));
    EXPECT_EQ(few.layout, all.layout);
    EXPECT_EQ(few.ends, all.ends);
    EXPECT_EQ(few.segments, all.segments);
    EXPECT_EQ(few.micro_batches, all.micro_batches);
    EXPECT_EQ(few.zero, all.zero);
    EXPECT_EQ(few.tied, all.tied);
    EXPECT_EQ(few.training, all.training);
    EXPECT_EQ(few.program_of, all.program_of);
    ASSERT_EQ(few.programs.size(), all.programs.size());
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const RankPlan& plan = plans[static_cast<std::size_t>(rank)];
      EXPECT_EQ(to_json(few.program(rank)), to_json(plan.train)) << rank;
      ASSERT_EQ(few.of(rank).buckets.size(), plan.flat.buckets().size());
      for (std::size_t b = 0; b < plan.flat.buckets().size(); ++b) {
        EXPECT_EQ(few.of(rank).buckets[b].segments, plan.flat.buckets()[b].segments);
        EXPECT_EQ(few.of(rank).buckets[b].sum, plan.flat.buckets()[b].sum);
      }
    }
  }
}

}  // namespace
}  // namespace plait::parallel
