// Schedules made from times run, keep to their memory, and end no later than the named ones.
#include "parallel/schedule/planned_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/error_of.h"
#include "core/philox.h"
#include "parallel/schedule/pass_messages.h"
#include "parallel/schedule/schedule_timeline.h"

namespace plait::parallel {
namespace {

// `limit`: in micro-batches.
StageTimes equal_times(const StageMap& stages, double limit) {
  StageTimes times = equal_times(stages);
  for (double& most : times.limit) most *= limit / stages.ranks();
  return times;
}

double length_of_named(ScheduleKind kind, const StageMap& stages, int micro_batches, const StageTimes& times) {
  const Schedule schedule = make_schedule(
      {.kind = kind, .ranks = stages.ranks(), .virtual_stages = stages.chunks(0), .micro_batches = micro_batches});
  EXPECT_EQ(schedule.stages, stages);
  return length_of(schedule, times);
}

// Expects every pass once, each stage's in ascending order, within memory, with messages that can be received.
void expect_right(const Schedule& schedule, const StageMap& stages, int micro_batches, const StageTimes& times) {
  ASSERT_EQ(schedule.stages, stages);
  EXPECT_GT(simulate(schedule).end, 0) << "it runs, and computes everything once";
  for (int rank = 0; rank < stages.ranks(); ++rank) {
    EXPECT_LE(most_held(schedule, times, rank), times.limit[static_cast<std::size_t>(rank)] * (1 + 1e-9));
    std::vector<std::vector<int>> seen(4 * static_cast<std::size_t>(stages.chunks(rank)));
    for (const Pass& pass : schedule.passes[static_cast<std::size_t>(rank)]) {
      auto& list = seen[4 * static_cast<std::size_t>(pass.chunk) + static_cast<std::size_t>(pass.kind)];
      EXPECT_TRUE(list.empty() || list.back() < pass.micro_batch);
      list.push_back(pass.micro_batch);
    }
  }
  EXPECT_EQ(schedule.micro_batches, micro_batches);
  Schedule timed = schedule;
  time_messages(timed);
}

struct Case {
  StageMap stages;
  int micro_batches = 1;
  StageTimes times;
};

// A case of any size, with stages that differ up to tenfold, and memory for one micro-batch to twice as many as there are
// ranks.
Case random_case(std::uint64_t round) {
  const Random random(16, "planned");
  const auto below = [&](std::uint64_t bound, std::uint64_t what) {
    return static_cast<int>(random.below(bound, round, what));
  };
  const int ranks = 1 + below(7, 0), chunks = 1 + below(3, 1);
  const bool is_v = chunks == 2 && below(2, 3) == 0;
  Case c{is_v ? StageMap(StagePlacement::v, ranks, 2) : StageMap(StagePlacement::loop, ranks, chunks), 1 + below(14, 2), {}};
  c.times = equal_times(c.stages);
  const double spread = below(3, 5) * 0.9;
  for (int s = 0; s < c.stages.count(); ++s) {
    const auto index = static_cast<std::size_t>(s);
    const auto some = [&](std::uint64_t what) { return 0.2 + spread * below(1000, 100 + 4 * index + what) / 1000; };
    c.times.forward[index] = some(0), c.times.backward_input[index] = some(1), c.times.backward_weight[index] = some(2);
    c.times.held[index] = below(5, 8) == 0 && below(3, 100 + 4 * index + 3) == 0 ? 0 : some(3);
  }
  c.times.send = below(4, 6) * 0.2;
  for (int rank = 0; rank < ranks; ++rank) {
    double whole = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) whole += c.times.held[static_cast<std::size_t>(c.stages.stage(rank, chunk))];
    // Sometimes there is memory for one micro-batch only.
    const auto more = static_cast<double>(below(4, 9) == 0 ? 0 : below(1000, 7));
    c.times.limit[static_cast<std::size_t>(rank)] = whole * (1 + more * (2 * ranks - 1) / 1000);
  }
  return c;
}

TEST(PlannedSchedule, OfAnyTimesRunsWithinMemoryAndIsNoLongerThanTheNamedOnesThatFit) {
  int compared = 0, shorter = 0;
  for (std::uint64_t round = 0; round < 90; ++round) {
    const auto& [stages, micro_batches, times] = random_case(round);
    const int ranks = stages.ranks(), chunks = stages.chunks(0);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + std::to_string(ranks) + " ranks, " + std::to_string(chunks) +
                 " chunks, " + std::to_string(micro_batches) + " micro-batches");
    const Schedule planned = planned_schedule(stages, micro_batches, times);
    expect_right(planned, stages, micro_batches, times);
    const double length = length_of(planned, times);
    EXPECT_EQ(planned.passes, planned_schedule(stages, micro_batches, times).passes) << "the same on every rank";
    for (const ScheduleRow& row : built_in_schedules) {
      if (row.kind == ScheduleKind::planned || row.chunks_with(chunks) != chunks) continue;
      if (row.in_rounds && micro_batches % ranks != 0) continue;
      const Schedule named =
          make_schedule({.kind = row.kind, .ranks = ranks, .virtual_stages = chunks, .micro_batches = micro_batches});
      if (!(named.stages == stages)) continue;
      bool fits = true;
      for (int rank = 0; rank < ranks; ++rank)
        fits = fits && most_held(named, times, rank) <= times.limit[static_cast<std::size_t>(rank)];
      if (!fits) continue;
      EXPECT_LE(length, length_of(named, times) * (1 + 1e-9)) << row.name;
      ++compared;
      if (length < 0.99 * length_of(named, times)) ++shorter;
    }
  }
  EXPECT_GT(compared, 60);
  EXPECT_GT(shorter, 30) << "it is not just one of them";
}

TEST(PlannedSchedule, OfEqualStagesNeedsNoMoreTimeThanZeroBubbleOnes) {
  const StageMap loop(StagePlacement::loop, 4, 1), v(StagePlacement::v, 4, 2);
  StageTimes times = equal_times(loop, 4);
  EXPECT_LE(length_of(planned_schedule(loop, 8, times), times), length_of_named(ScheduleKind::zb_h1, loop, 8, times));
  EXPECT_LT(length_of(planned_schedule(loop, 8, times), times), length_of_named(ScheduleKind::one_f_one_b, loop, 8, times));
  times = equal_times(v, 4);
  EXPECT_LE(length_of(planned_schedule(v, 8, times), times), length_of_named(ScheduleKind::zb_v, v, 8, times));
  // With more memory the last rank, which has its first input after three forwards, then never waits (Qi et al. 2023, ZB-H2),
  // even if an input part takes longer than a weight part, which costs ZB-H1 time.
  times = equal_times(loop, 8);
  for (double& seconds : times.backward_input) seconds = 1.4;
  for (double& seconds : times.backward_weight) seconds = 0.8;
  const double length = length_of(planned_schedule(loop, 16, times), times);
  EXPECT_NEAR(length, 16 * 3.2 + 3, 1e-9);
  EXPECT_GT(length_of_named(ScheduleKind::zb_h1, loop, 16, times), length + 1);
}

// With half of the memory of the others a V has two thirds of the idle time of 1F1B (Qi et al. 2024).
TEST(PlannedSchedule, OfAVNeedsLittleMemory) {
  const StageMap loop(StagePlacement::loop, 8, 1), v(StagePlacement::v, 8, 2);
  const StageTimes times = equal_times(v, 4);
  const double idle = length_of(planned_schedule(v, 24, times), times) / 2 - 24 * 3;
  const double idle_of_1f1b = length_of_named(ScheduleKind::one_f_one_b, loop, 24, equal_times(loop, 8)) - 24 * 3;
  EXPECT_LT(idle, 0.7 * idle_of_1f1b);
}

// The second stage is the largest, as if the first has the embedding and few blocks; messages take time.
TEST(PlannedSchedule, OfUnequalStagesIsShorterThanAllNamedOnes) {
  const StageMap stages(StagePlacement::loop, 4, 1);
  StageTimes times = equal_times(stages, 6);
  times.forward = {0.9, 1.3, 1, 1.1}, times.backward_input = {0.9, 1.5, 1.2, 1.1}, times.backward_weight = {0.7, 1, 0.8, 0.9};
  times.send = 0.1;
  const double length = length_of(planned_schedule(stages, 12, times), times);
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1})
    EXPECT_LT(length, 0.98 * length_of_named(kind, stages, 12, times)) << to_string(kind);
  EXPECT_GE(length, 0.9 + 0.1 + 12 * (1.3 + 1.5 + 1)) << "the second stage has that much to do";
}

TEST(PlannedSchedule, TakesThePlacementThatIsShorter) {
  // A V puts the first and the last stage on one rank, which is too much for it; a loop spreads them.
  const auto uneven = [](const StageMap& stages) {
    StageTimes times = equal_times(stages);
    for (auto* list : {&times.forward, &times.backward_input, &times.backward_weight}) list->front() = list->back() = 3;
    return times;
  };
  EXPECT_EQ(planned_schedule(4, 2, 8, uneven).stages, StageMap(StagePlacement::loop, 4, 2));
  EXPECT_EQ(planned_schedule(4, 2, 8, [](const StageMap& stages) { return equal_times(stages); }).stages,
            StageMap(StagePlacement::v, 4, 2));
  EXPECT_EQ(planned_schedule(4, 3, 5, uneven).stages, StageMap(StagePlacement::loop, 4, 3));
}

TEST(PlannedSchedule, NeedsRoomForOneMicroBatch) {
  const StageMap stages(StagePlacement::v, 3, 2);
  StageTimes times = equal_times(stages, 1);
  expect_right(planned_schedule(stages, 4, times), stages, 4, times);
  times.limit[1] *= 0.9;
  EXPECT_THROW(planned_schedule(stages, 4, times), InternalError);
}

TEST(PlannedSchedule, IsCarriedAsText) {
  const StageMap stages(StagePlacement::v, 3, 2);
  const Schedule schedule = planned_schedule(stages, 5, equal_times(stages));
  const auto carried = planned_passes(schedule);
  const ScheduleSpec spec{.kind = ScheduleKind::planned,
                          .ranks = 3,
                          .virtual_stages = 2,
                          .micro_batches = 5,
                          .file = planned_passes(carried->text, "rank 0")};
  const Schedule back = make_schedule(spec);
  EXPECT_EQ(back.passes, schedule.passes);
  EXPECT_EQ(back.stages, stages);
  EXPECT_EQ(back.name, "planned");
  const auto refusal = [&](auto change) {
    ScheduleSpec other = spec;
    change(other);
    return error_of<ConfigError>([&] { make_schedule(other); });
  };
  EXPECT_THAT(refusal([](ScheduleSpec& s) { s.micro_batches = 6; }), testing::HasSubstr("has 5 micro-batches"));
  EXPECT_THAT(refusal([](ScheduleSpec& s) { s.ranks = 2; }), testing::HasSubstr("has passes of 3 ranks"));
  EXPECT_THAT(refusal([](ScheduleSpec& s) { s.virtual_stages = 1; }), testing::HasSubstr("has 6 stages"));
  EXPECT_THAT(error_of<ConfigError>([] { planned_passes("0F0,0B0\n1B0,1F0\n", "plan.json"); }),
              testing::AllOf(testing::HasSubstr("plan.json"), testing::HasSubstr("deadlock")));
}

}  // namespace
}  // namespace plait::parallel
