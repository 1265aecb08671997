// Schedules from files become programs that are valid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "core/error_of.h"
#include "parallel/file_schedules.h"
#include "parallel/program_sets.h"
#include "parallel/proof/validator.h"
#include "parallel/schedule/pass_messages.h"
#include "parallel/schedule/schedule_timeline.h"
#include "parallel/schedule_kinds.h"

namespace plait::parallel {
namespace {

// Expects valid programs with every option that the configuration allows.
void expect_valid(const std::shared_ptr<const ScheduleFile>& file) {
  const bool ends_meet = file->rank_of_stage.front() == file->rank_of_stage.back();
  for (const int zero : {0, 1, 2}) {
    for (const bool overlap : {true, false}) {
      for (const bool tied : {true, false}) {
        if (zero == 2 && (file->splits_backward || (tied && ends_meet))) continue;
        const SetSpec spec{.schedule = spec_of(file), .data = 2, .tensor = 2, .zero = zero, .overlap = overlap, .tied = tied};
        ASSERT_EQ(first_problem(make_set(spec)), "") << spec.name() << "\n" << file->text;
        ASSERT_EQ(first_problem(make_set(spec, false)), "") << spec.name() << "\n" << file->text;
      }
    }
  }
}

TEST(ScheduleFromFile, RealOnesAreValid) {
  for (const std::string& name : real_schedules) {
    SCOPED_TRACE(name);
    expect_valid(real_schedule(name));
  }
}

TEST(ScheduleFromFile, RealOnesIdleAsTheirAuthorsSay) {
  const auto bubble = [](const std::string& name) {
    return simulate(make_schedule(spec_of(real_schedule(name)))).bubble_fraction();
  };
  EXPECT_NEAR(bubble("Schedule1F1B-pp4-m8"), 3 / 11.0, 1e-12);
  EXPECT_NEAR(bubble("ScheduleInterleaved1F1B-pp4-m8"), 3 / 19.0, 1e-12);
  EXPECT_NEAR(bubble("ScheduleLoopedBFS-pp2-m8"), 1 / 17.0, 1e-12);
  EXPECT_LT(bubble("ScheduleZBVZeroBubble-pp4-m8"), 3 / 11.0);
  EXPECT_LT(bubble("ScheduleDualPipeV-pp2-m8"), 1 / 9.0);
}

TEST(ScheduleFromFile, BuiltInOnesWrittenAndReadAgainAreTheSamePrograms) {
  for (const ScheduleKind kind : built_in_kinds()) {
    for (const auto& [ranks, micro_batches] : {std::pair{2, 2}, {2, 6}, {3, 3}, {4, 8}, {4, 16}}) {
      SetSpec spec{.schedule = {kind, ranks, some_virtual_stages(kind), micro_batches}, .data = 2}, from_file = spec;
      SCOPED_TRACE(spec.name());
      const Schedule schedule = make_schedule(spec.schedule);
      const auto file = parsed_schedule(schedule_csv(stage_passes(schedule)));
      const Schedule again = make_schedule(spec_of(file));
      EXPECT_EQ(again.passes, schedule.passes);
      EXPECT_EQ(again.stages, schedule.stages);
      from_file.schedule = spec_of(file);
      for (const bool overlap : {true, false}) {
        spec.overlap = from_file.overlap = overlap;
        const ProgramSet built_in = make_set(spec), read = make_set(from_file);
        ASSERT_EQ(read.programs.size(), built_in.programs.size());
        for (std::size_t p = 0; p < read.programs.size(); ++p) {
          EXPECT_TRUE(read.programs[p].program == built_in.programs[p].program) << "pipeline rank " << p;
        }
      }
    }
  }
}

TEST(ScheduleFromFile, AnyPlacementAndOrderIsValid) {
  std::mt19937 random(20);
  int received_as_sent = 0;
  for (int round = 0; round < 25; ++round) {
    const auto file = parsed_schedule(schedule_csv(random_passes(random)));
    SCOPED_TRACE("round " + std::to_string(round));
    expect_valid(file);
    if (HasFatalFailure()) return;
    received_as_sent += may_receive_one_pass_ahead(make_schedule(spec_of(file))) ? 0 : 1;
  }
  EXPECT_GT(received_as_sent, 0);
}

// Rank 1 sends rank 0 five gradients before an activation. Rank 0 needs that activation, by way of rank 2, before it can use
// the first gradient.
TEST(ScheduleFromFile, MessagesThatWouldWaitInACircleAreReceivedAsTheyAreSent) {
  Passes passes(3);
  const int last = 5;
  const auto add = [&](int rank, PassKind kind, int stage, int first, int end) {
    for (int m = first; m < end; ++m) passes[static_cast<std::size_t>(rank)].push_back({kind, stage, m});
  };
  constexpr PassKind forward = PassKind::forward, backward = PassKind::backward;
  add(0, forward, 0, 0, last + 1);
  for (const auto& [first, end] : {std::pair{0, last}, {last, last + 1}}) {
    for (const auto& [rank, stage] : {std::pair{1, 1}, {2, 2}, {0, 3}}) {
      add(rank, forward, stage, first, end);
      add(rank, backward, stage, first, end);
    }
  }
  add(0, backward, 0, 0, last + 1);
  const auto file = parsed_schedule(schedule_csv(passes));
  Schedule schedule = make_schedule(spec_of(file));
  EXPECT_FALSE(may_receive_one_pass_ahead(schedule));
  time_messages(schedule);
  EXPECT_FALSE(schedule.times.empty());
  expect_valid(file);
}

TEST(ScheduleFromFile, SizesThatDoNotFitAreTheUsersError) {
  const auto file = real_schedule("ScheduleDualPipeV-pp2-m8");
  const auto problem_of = [&](int ranks, int micro_batches) -> std::string {
    ScheduleSpec spec = spec_of(file);
    spec.ranks = ranks, spec.micro_batches = micro_batches;
    return error_of<ConfigError>([&] { return make_schedule(spec); });
  };
  EXPECT_EQ(problem_of(2, 8), nothing_thrown);
  EXPECT_THAT(problem_of(4, 8), testing::HasSubstr("has passes of 2 ranks, but parallel.pipeline=4"));
  EXPECT_THAT(problem_of(2, 4), testing::HasSubstr("has 8 micro-batches, but a step has 4"));
}

}  // namespace
}  // namespace plait::parallel
