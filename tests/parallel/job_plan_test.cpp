#include "parallel/job_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/schedule_files.h"
#include "core/error.h"
#include "core/error_of.h"
#include "parallel/plan_json.h"

namespace plait::parallel {
namespace {

Config config(std::int64_t data, std::int64_t tensor, std::int64_t pipeline, ScheduleKind schedule, std::int64_t zero) {
  Config config;
  config.model.layers = 6, config.model.hidden = 32, config.model.heads = 4, config.model.vocab = 150, config.model.ffn = 64;
  config.data.sequence_length = 16;
  config.train.micro_batch = 1, config.train.global_batch = 4 * data;
  config.parallel.size[Axis::data] = data, config.parallel.size[Axis::tensor] = tensor,
  config.parallel.size[Axis::pipeline] = pipeline;
  config.parallel.schedule = schedule, config.parallel.zero = zero;
  config.comm.bucket_mb = 0.02;
  return config;
}

// In each bucket, the shards of 7 ranks begin and end within other parameters, and the last of 4 tensor ranks stores less of a
// padded vocabulary.
TEST(JobPlan, PlannedBytesAreThoseOfEveryRanksPlan) {
  bool differ = false;
  for (const Config& c : {config(7, 1, 1, ScheduleKind::one_f_one_b, 2), config(5, 2, 2, ScheduleKind::one_f_one_b, 1),
                          config(3, 4, 1, ScheduleKind::one_f_one_b, 1), config(2, 2, 2, ScheduleKind::zb_v, 0),
                          config(3, 1, 4, ScheduleKind::gpipe, 2), config(1, 4, 1, ScheduleKind::one_f_one_b, 0)}) {
    const Layout layout = resolve_layout(
        c.parallel,
        static_cast<int>(c.parallel.size[Axis::data] * c.parallel.size[Axis::tensor] * c.parallel.size[Axis::pipeline]));
    SCOPED_TRACE(layout.to_string() + ", zero " + std::to_string(c.parallel.zero));
    std::vector<std::size_t> all;
    for (const RankPlan& plan : make_job_plan(c, Decision{}, 150, layout, DeviceKind::host)) {
      all.push_back(plan.memory.total_bytes());
      differ = differ || (layout.size(Axis::pipeline) == 1 && all.back() != all.front());
    }
    EXPECT_EQ(planned_bytes(make_stage_plans(c, Decision{}, 150, layout, DeviceKind::host)), all);
  }
  EXPECT_TRUE(differ) << "so there is something to see";
}

TEST(JobPlan, ProgramsOfOnePlanPerPipelineRankAreThoseOfAllPlans) {
  for (const Config& c : {config(2, 2, 2, ScheduleKind::one_f_one_b, 0), config(3, 1, 4, ScheduleKind::gpipe, 2),
                          config(2, 2, 3, ScheduleKind::zb_v, 1), config(4, 2, 1, ScheduleKind::one_f_one_b, 1)}) {
    const Layout layout = resolve_layout(
        c.parallel,
        static_cast<int>(c.parallel.size[Axis::data] * c.parallel.size[Axis::tensor] * c.parallel.size[Axis::pipeline]));
    SCOPED_TRACE(layout.to_string() + ", " + schedule_name(c.parallel));
    const std::vector<RankPlan> plans = make_job_plan(c, Decision{}, 150, layout, DeviceKind::host);
    const ProgramSet all = training_programs(plans),
                     few = training_programs(make_stage_plans(c, Decision{}, 150, layout, DeviceKind::host));
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
        EXPECT_EQ(few.of(rank).buckets[b].partial, plan.flat.buckets()[b].partial);
      }
    }
  }
}

JobOutline outline(const Config& c) {
  const Layout layout = resolve_layout(
      c.parallel,
      static_cast<int>(c.parallel.size[Axis::data] * c.parallel.size[Axis::tensor] * c.parallel.size[Axis::pipeline]));
  return outline_job(c, Decision{}, 150, layout, DeviceKind::host);
}

// There are twice as many micro-batches, of half the sequences, in the memory of the whole ones.
TEST(JobPlan, HalvesOfMicroBatchesTakeTheMemoryOfTheWhole) {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1, ScheduleKind::zb_v, ScheduleKind::planned}) {
    Config c = config(1, 2, 2, kind, 0);
    c.train.micro_batch = 4, c.train.global_batch = 16;
    const Layout layout = resolve_layout(c.parallel, 4);
    c.comm.braid = Braid::passes;
    const std::vector<RankPlan> whole = make_stage_plans(c, Decision{}, 150, layout, DeviceKind::host);
    c.comm.braid = Braid::halves;
    const std::vector<RankPlan> halves = make_stage_plans(c, Decision{}, 150, layout, DeviceKind::host);
    for (std::size_t stage = 0; stage < whole.size(); ++stage) {
      SCOPED_TRACE(schedule_name(c.parallel) + ", stage " + std::to_string(stage));
      EXPECT_EQ(whole[stage].micro_batches, 4);
      EXPECT_EQ(halves[stage].micro_batches, 8);
      EXPECT_EQ(halves[stage].sizes.micro_batch.batch, 2);
      EXPECT_EQ(halves[stage].global_batch, 16);
      // Memory that only one pass at a time needs is smaller.
      const auto bytes = static_cast<double>(whole[stage].memory.total_bytes());
      EXPECT_LE(static_cast<double>(halves[stage].memory.total_bytes()), 1.01 * bytes);
      EXPECT_GE(static_cast<double>(halves[stage].memory.total_bytes()), 0.95 * bytes);
    }
  }
}

TEST(JobPlan, HalvesAreTakenWhereNothingElseIsThereToBraidAForwardWith) {
  const auto braids = [](const Config& c) { return outline(c).braids.way; };
  Config c = config(1, 2, 2, ScheduleKind::one_f_one_b, 0);
  c.train.micro_batch = 2, c.train.global_batch = 8;
  EXPECT_EQ(braids(c), Braid::passes) << "halves only where they are asked for";
  c.comm.braid = Braid::halves;
  EXPECT_EQ(braids(c), Braid::halves);
  EXPECT_TRUE(outline(c).schedule.halves);
  c.parallel.size[Axis::pipeline] = 1;
  EXPECT_EQ(braids(c), Braid::passes) << "each forward has a backward before it";
  c.train.global_batch = 2;
  EXPECT_EQ(braids(c), Braid::halves) << "of a single micro-batch";
  c.parallel.size[Axis::tensor] = 1;
  EXPECT_EQ(braids(c), Braid::none);
  c.parallel.size[Axis::tensor] = 2;
  c.comm.braid = Braid::none;
  EXPECT_EQ(braids(c), Braid::none);
}

TEST(JobPlan, AForwardIsAheadOnlyOnRanksWithAllStages) {
  const auto problem = [](const Config& c) {
    try {
      outline(c);
    } catch (const ConfigError& error) {
      return error.problems().front().path + ": " + error.problems().front().rule;
    }
    return std::string();
  };
  Config c = config(1, 2, 1, ScheduleKind::one_f_one_b, 0);
  c.train.micro_batch = 1, c.train.global_batch = 4;
  c.comm.braid = Braid::ahead;
  EXPECT_EQ(outline(c).braids.way, Braid::ahead);
  EXPECT_EQ(outline(c).schedule.passes.front()[1].kind, PassKind::forward);
  c.parallel.size[Axis::pipeline] = 2;
  EXPECT_THAT(problem(c), testing::AllOf(testing::HasSubstr("comm.braid: "), testing::HasSubstr("parallel.pipeline=2"),
                                         testing::HasSubstr("take comm.braid=passes")));
  c.parallel.size[Axis::tensor] = 1;
  EXPECT_EQ(outline(c).braids.way, Braid::none);
  c.parallel.size[Axis::pipeline] = 1, c.parallel.size[Axis::tensor] = 2;
  c.parallel.schedule = ScheduleKind::file, c.parallel.schedule_file = real_schedule("ScheduleDualPipeV-pp2-m8");
  EXPECT_THAT(problem(c), testing::HasSubstr("comm.braid: ahead changes the order of passes"));
}

TEST(JobPlan, PairsOfAScheduleFileStay) {
  Config c = config(1, 2, 2, ScheduleKind::file, 0);
  c.train.micro_batch = 2, c.train.global_batch = 16;
  c.comm.braid = Braid::halves;
  c.parallel.schedule_file = real_schedule("ScheduleDualPipeV-pp2-m8");
  const JobOutline job = outline(c);
  EXPECT_EQ(job.braids.way, Braid::passes);
  EXPECT_EQ(job.micro_batches, 8);
  EXPECT_FALSE(job.schedule.halves);
}

TEST(JobPlan, AnOddMicroBatchIsNotCutInHalves) {
  Config c = config(1, 2, 2, ScheduleKind::one_f_one_b, 0);
  c.train.micro_batch = 3, c.train.global_batch = 12;
  c.comm.braid = Braid::halves;
  try {
    outline(c);
    FAIL();
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 1U);
    EXPECT_EQ(error.problems().front().path, "comm.braid");
    EXPECT_THAT(error.problems().front().rule,
                testing::HasSubstr("train.micro_batch=3: take an even one, or comm.braid=passes"));
  }
}

// The refusal comes before a GPU is asked for anything.
TEST(JobPlan, RefusesWhatTheKernelsOfGpusDoNotTake) {
  const auto refusal = [](const Config& c) {
    const Layout layout = resolve_layout(c.parallel, static_cast<int>(c.parallel.size[Axis::tensor]));
    static_cast<void>(outline_job(c, Decision{}, 150, layout, DeviceKind::host));
    return error_of<ConfigError>([&] { outline_job(c, Decision{}, 150, layout, DeviceKind::cuda); });
  };
  Config wide = config(1, 1, 1, ScheduleKind::one_f_one_b, 0);
  wide.precision.compute = "fp32", wide.model.heads = 1, wide.model.head_dim = 512;
  EXPECT_THAT(refusal(wide), testing::HasSubstr("model.head_dim=512: must be at most 256 on GPUs"));
  Config many = config(1, 1, 1, ScheduleKind::one_f_one_b, 0);
  many.precision.compute = "fp32", many.train.global_batch = many.train.micro_batch = 65536;
  EXPECT_THAT(refusal(many), testing::HasSubstr("train.micro_batch=65536: must be at most 65535 on GPUs"));

  // Whole micro-batches have a multiple of 16 tokens; halves do not.
  Config halves = config(1, 2, 1, ScheduleKind::one_f_one_b, 0);
  halves.model.hidden = halves.model.ffn = 64, halves.data.sequence_length = 24;
  halves.train.micro_batch = halves.train.global_batch = 2;
  halves.precision.compute = "bf16", halves.precision.matmul = MatmulType::fp8;
  EXPECT_EQ(refusal(halves), nothing_thrown);
  halves.comm.braid = Braid::halves;
  EXPECT_THAT(refusal(halves), testing::HasSubstr("needs multiples of 16: a rank's tokens of a pass"));
}

}  // namespace
}  // namespace plait::parallel
