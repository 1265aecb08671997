// The trial by which a rank decides to launch its steps whole, and the batches that a graph copies from.
#include "runtime/graph_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "core/error.h"
#include "core/error_of.h"
#include "runtime/interpreter.h"

namespace plait::runtime {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct Course {
  std::vector<std::int64_t> whole, decisions;  // steps
  bool may_be_whole = false;
  std::string text;
};

// Runs steps whose results come as late as an interpreter lets them.
Course course_of(GraphTrial trial, double piecewise_ms, double whole_ms, std::int64_t steps = 60) {
  Course course;
  std::deque<std::pair<std::int64_t, bool>> pending;
  for (std::int64_t step = 0; step < steps; ++step) {
    if (pending.size() == Interpreter::results_in_flight) {
      const auto [taken, whole] = pending.front();
      pending.pop_front();
      // The first steps of either way take much longer.
      const bool slow =
          taken < GraphTrial::first_measured || (taken >= GraphTrial::first_whole && taken < GraphTrial::first_whole_measured);
      trial.add(taken, whole, slow ? 1000 : whole ? whole_ms : piecewise_ms);
    }
    if (const auto milliseconds = trial.due(step)) {
      course.decisions.push_back(step);
      EXPECT_EQ(*milliseconds, step == GraphTrial::first_whole ? piecewise_ms : whole_ms);
      trial.decide(*milliseconds);
    }
    pending.emplace_back(step, trial.is_whole(step));
    if (trial.is_whole(step)) course.whole.push_back(step);
  }
  course.may_be_whole = trial.may_be_whole();
  course.text = trial.text("kernel by kernel");
  return course;
}

TEST(GraphTrial, KeepsWhatTookLess) {
  const Course faster = course_of({GraphUse::automatic, "", 1}, 4, 3);
  EXPECT_EQ(faster.decisions, (std::vector<std::int64_t>{GraphTrial::first_whole, GraphTrial::last_step}));
  EXPECT_EQ(faster.whole.front(), GraphTrial::first_whole);
  EXPECT_EQ(std::ssize(faster.whole), 60 - GraphTrial::first_whole);
  EXPECT_TRUE(faster.may_be_whole);
  EXPECT_EQ(faster.text, "each step is one launch (a CUDA graph): 3.000 ms, kernel by kernel 4.000 ms");

  for (const double no_less : {3.99, 4.5}) {
    const Course slower = course_of({GraphUse::automatic, "", 1}, 4, no_less);
    EXPECT_EQ(std::ssize(slower.whole), GraphTrial::last_step - GraphTrial::first_whole);
    EXPECT_FALSE(slower.may_be_whole);
    EXPECT_THAT(slower.text, HasSubstr("kernel by kernel: 4.000 ms, as one launch (a CUDA graph) "));
  }
}

TEST(GraphTrial, LeavesLongStepsAsTheyAre) {
  const Course long_steps = course_of({GraphUse::automatic, "", 1}, 120, 1);
  EXPECT_EQ(long_steps.decisions, (std::vector<std::int64_t>{GraphTrial::first_whole}));
  EXPECT_THAT(long_steps.whole, IsEmpty());
  EXPECT_FALSE(long_steps.may_be_whole);
  EXPECT_EQ(long_steps.text, "steps are launched kernel by kernel: one of 120 ms has little to gain as one launch");
}

TEST(GraphTrial, DoesWhatItIsTold) {
  const Course off = course_of({GraphUse::off, "", 1}, 4, 3);
  EXPECT_THAT(off.decisions, IsEmpty());
  EXPECT_THAT(off.whole, IsEmpty());
  EXPECT_EQ(off.text, "steps are launched kernel by kernel: train.graph is off");

  const Course by_instruction = course_of({GraphUse::instructions, "", 1}, 4, 3);
  EXPECT_THAT(by_instruction.decisions, IsEmpty());
  EXPECT_THAT(by_instruction.whole, IsEmpty());
  EXPECT_FALSE(by_instruction.may_be_whole);
  EXPECT_THAT(by_instruction.text, HasSubstr("train.graph is instructions"));

  const Course on = course_of({GraphUse::on, "", 1}, 4, 5);
  EXPECT_THAT(on.decisions, IsEmpty());
  EXPECT_EQ(std::ssize(on.whole), 60 - GraphTrial::first_measured);
  EXPECT_EQ(on.text, "each step is one launch (a CUDA graph): train.graph is on");
}

TEST(GraphTrial, SaysWhatStandsInTheWay) {
  const Course impossible = course_of({GraphUse::automatic, "messages have no place in it", 1}, 4, 3);
  EXPECT_THAT(impossible.decisions, IsEmpty());
  EXPECT_FALSE(impossible.may_be_whole);
  EXPECT_EQ(impossible.text, "steps are launched kernel by kernel: messages have no place in it");
  EXPECT_THAT(error_of<ConfigError>([] { GraphTrial(GraphUse::on, "messages have no place in it", 1); }),
              HasSubstr("messages have no place in it"));
}

TEST(GraphTrial, IsForOneRank) {
  const Course several = course_of({GraphUse::automatic, "", 2}, 4, 3);
  EXPECT_THAT(several.decisions, IsEmpty());
  EXPECT_THAT(several.whole, IsEmpty());
  EXPECT_THAT(several.text, HasSubstr("kernel by kernel: of several ranks"));
  EXPECT_EQ(std::ssize(course_of({GraphUse::on, "", 2}, 4, 3).whole), 60 - GraphTrial::first_measured);
}

TEST(GraphTrial, WithoutTimesLeavesStepsAsTheyAre) {
  GraphTrial trial(GraphUse::automatic, "", 1);
  EXPECT_EQ(trial.due(GraphTrial::first_whole), 0);
  trial.decide(0);
  EXPECT_TRUE(trial.settled());
  EXPECT_FALSE(trial.may_be_whole());
}

TEST(StagedBatches, HandOutWhatTheyTookInOrderAndFromTheSamePlaces) {
  struct Numbers final : BatchSource {
    HostBatch next() override {
      EXPECT_EQ(taken, released) << "each is given back before the next is taken";
      for (std::size_t i = 0; i < 3; ++i) {
        tokens[i] = ++last;
        targets[i] = -last;
        starts[i] = 100 * last;
      }
      ++taken;
      return {tokens.data(), targets.data(), starts.data()};
    }
    void release(StreamRef) override { ++released; }
    std::vector<std::int32_t> tokens = {0, 0, 0}, targets = tokens, starts = tokens;
    std::int32_t last = 0;
    int taken = 0, released = 0;
  } numbers;
  const Stream idle{Device{}};
  for (const bool has_starts : {false, true}) {
    numbers.last = 0;
    const StagedBatches size(nullptr, 2, 12, has_starts);
    EXPECT_EQ(size.bytes(), has_starts ? 72u : 48u);
    std::vector<std::int32_t> memory(size.bytes() / 4);
    StagedBatches staged(reinterpret_cast<std::byte*>(memory.data()), 2, 12, has_starts);
    const std::int32_t* first_place = nullptr;
    for (std::int32_t first : {1, 7}) {
      staged.fill(numbers, idle);
      for (const std::int32_t at : {first, first + 3}) {
        const HostBatch batch = staged.next();
        for (std::int32_t i = 0; i < 3; ++i) {
          EXPECT_EQ(batch.tokens[i], at + i);
          EXPECT_EQ(batch.targets[i], -at - i);
          if (has_starts) {
            EXPECT_EQ(batch.starts[i], 100 * (at + i));
          }
        }
        EXPECT_EQ(batch.starts != nullptr, has_starts);
        if (at == 1) first_place = batch.tokens;
        if (at == 7) {
          EXPECT_EQ(batch.tokens, first_place);
        }
      }
    }
  }
}

}  // namespace
}  // namespace plait::runtime
