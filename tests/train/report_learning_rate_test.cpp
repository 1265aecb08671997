#include "train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plait::train {
namespace {

OptimizerConfig optimizer(Decay schedule, std::int64_t warmup) {
  OptimizerConfig config;
  config.lr = 0.5;
  config.min_lr_fraction = 0.125;
  config.schedule = schedule;
  config.warmup = warmup;
  config.decay_fraction = 0.2;
  return config;
}

TEST(LearningRate, WarmsUpLinearlyAndReachesThePeak) {
  for (const auto& [schedule, name] : names<Decay>) {
    const LearningRate rate(optimizer(schedule, 4), 100);
    EXPECT_DOUBLE_EQ(rate.at(0), 0.125) << name;
    EXPECT_DOUBLE_EQ(rate.at(1), 0.25) << name;
    EXPECT_DOUBLE_EQ(rate.at(3), 0.5) << name;
    EXPECT_LE(rate.at(4), 0.5) << name;
    EXPECT_GT(rate.at(4), 0.495) << name << ": no jump after warm-up";
  }
}

TEST(LearningRate, EndsAtTheMinimumOnTheLastStep) {
  for (const auto& [schedule, name] : names<Decay>) {
    if (schedule == Decay::constant) continue;
    const LearningRate rate(optimizer(schedule, 4), 100);
    EXPECT_DOUBLE_EQ(rate.at(99), 0.0625) << name;
    EXPECT_GT(rate.at(98), rate.at(99)) << name;
    EXPECT_DOUBLE_EQ(rate.at(1000), 0.0625) << name << ": stays there";
  }
}

TEST(LearningRate, NeverRisesAfterWarmUp) {
  for (const auto& [schedule, name] : names<Decay>) {
    const LearningRate rate(optimizer(schedule, 10), 57);
    for (std::int64_t step = 10; step < 60; ++step) ASSERT_LE(rate.at(step), rate.at(step - 1)) << name << " " << step;
  }
}

TEST(LearningRate, Constant) {
  const LearningRate rate(optimizer(Decay::constant, 0), 10);
  for (const int step : {0, 5, 9, 20}) EXPECT_DOUBLE_EQ(rate.at(step), 0.5);
}

TEST(LearningRate, LinearAndCosineHalfWay) {
  // Warm-up of 20, decay over 80: step 59 is its 40th.
  EXPECT_DOUBLE_EQ(LearningRate(optimizer(Decay::linear, 20), 100).at(59), (0.5 + 0.0625) / 2);
  EXPECT_NEAR(LearningRate(optimizer(Decay::cosine, 20), 100).at(59), (0.5 + 0.0625) / 2, 1e-15);
  EXPECT_NEAR(LearningRate(optimizer(Decay::cosine, 20), 100).at(39), 0.0625 + 0.4375 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
}

TEST(LearningRate, WsdHoldsAndThenDecays) {
  const LearningRate rate(optimizer(Decay::wsd, 10), 100);
  for (std::int64_t step = 9; step < 80; ++step) ASSERT_DOUBLE_EQ(rate.at(step), 0.5) << step;
  EXPECT_DOUBLE_EQ(rate.at(80), 0.5 - 0.4375 / 20);
  EXPECT_DOUBLE_EQ(rate.at(89), (0.5 + 0.0625) / 2);
}

TEST(LearningRate, WsdDecaysInStepsAndByShape) {
  OptimizerConfig config = optimizer(Decay::wsd, 10);
  config.decay_steps = 4;
  config.min_lr_fraction = 0;
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(95), 0.5) << "decay_fraction is not read";
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(96), 0.5 * 0.75);
  config.decay_shape = DecayShape::minus_sqrt;
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(96), 0.5 * (1 - std::sqrt(0.25)));
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(98), 0.5 * (1 - std::sqrt(0.75)));
  config.decay_shape = DecayShape::cosine;
  EXPECT_NEAR(LearningRate(config, 100).at(96), 0.5 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
  for (const auto& [shape, name] : names<DecayShape>) {
    config.decay_shape = shape;
    EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(95), 0.5) << name;
    EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(99), 0) << name;
  }
}

// What a fork of a trunk relies on: before the decay, the length of a run changes nothing.
TEST(LearningRate, WsdIsConstantBeforeItsDecayWhateverTheLength) {
  OptimizerConfig config = optimizer(Decay::wsd, 10);
  config.decay_steps = 20;
  const LearningRate trunk(optimizer(Decay::constant, 10), 300), fork(config, 120);
  for (std::int64_t step = 0; step < 100; ++step) ASSERT_EQ(fork.at(step), trunk.at(step)) << step;
  EXPECT_LT(fork.at(100), trunk.at(100));
}

TEST(LearningRate, WsdWithoutDecayAndWithNothingElse) {
  OptimizerConfig config = optimizer(Decay::wsd, 0);
  config.decay_fraction = 0;
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(99), 0.5);
  config.decay_fraction = 1;
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(49), (0.5 + 0.0625) / 2);
  config.warmup = 50;  // warm-up comes first where they overlap
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(49), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(74), (0.5 + 0.0625) / 2);
}

TEST(LearningRate, WarmUpAsLongAsTheRunOrLonger) {
  for (const auto& [schedule, name] : names<Decay>) {
    EXPECT_DOUBLE_EQ(LearningRate(optimizer(schedule, 10), 10).at(9), 0.5) << name;
    EXPECT_DOUBLE_EQ(LearningRate(optimizer(schedule, 10), 10).at(10), 0.5) << name;
    EXPECT_DOUBLE_EQ(LearningRate(optimizer(schedule, 20), 10).at(9), 0.25) << name;
  }
}

TEST(LearningRate, OneStep) {
  EXPECT_DOUBLE_EQ(LearningRate(optimizer(Decay::cosine, 0), 1).at(0), 0.0625);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer(Decay::cosine, 1), 1).at(0), 0.5);
}

TrainConfig cosine_of(std::int64_t steps) {
  TrainConfig train;
  train.steps = steps;
  train.optimizer.lr = 1e-3;
  train.optimizer.min_lr_fraction = 0;
  return train;
}

TEST(MovedSchedule, SaysFromWhereToWhere) {
  EXPECT_EQ(
      moved_schedule(cosine_of(100), cosine_of(200), 49),
      "the learning-rate schedule (cosine) moved, as train.steps was 100 and is 200: step 50 from 0.0005 to 0.000854, step "
      "100 from 0 to 0.0005");
  EXPECT_EQ(moved_schedule(cosine_of(100), cosine_of(50), 49),
            "the learning-rate schedule (cosine) moved, as train.steps was 100 and is 50: step 50 from 0.0005 to 0");
  // A run that had come to its end, and gets more steps, jumps up.
  EXPECT_EQ(moved_schedule(cosine_of(100), cosine_of(200), 100),
            "the learning-rate schedule (cosine) moved, as train.steps was 100 and is 200: step 101 from 0 to 0.000492");
  TrainConfig slower = cosine_of(100);
  slower.optimizer.lr = 5e-4;
  EXPECT_EQ(
      moved_schedule(cosine_of(100), slower, 49),
      "the learning-rate schedule (cosine) moved, as train.optimizer changed: step 50 from 0.0005 to 0.00025, step 100 from "
      "0 to 0");
}

// The next step and the last one keep their rates.
TEST(MovedSchedule, SaysWhatMovesInBetween) {
  TrainConfig before = cosine_of(100);
  before.optimizer.schedule = Decay::wsd;
  before.optimizer.decay_fraction = 0.2;
  TrainConfig longer = before, steps = before, shape = before;
  longer.optimizer.decay_fraction = 0.4;
  steps.optimizer.decay_steps = 1;
  shape.optimizer.decay_shape = before.optimizer.decay_shape == DecayShape::linear ? DecayShape::cosine : DecayShape::linear;
  for (const TrainConfig& now : {longer, steps, shape}) {
    const std::string said = moved_schedule(before, now, 10);
    EXPECT_THAT(said, testing::HasSubstr("the learning-rate schedule (wsd) moved, as train.optimizer changed: step "));
    const std::int64_t step = std::stoll(said.substr(said.find(": step ") + 7)) - 1;
    EXPECT_NE(LearningRate(before.optimizer, 100).at(step), LearningRate(now.optimizer, 100).at(step)) << said;
  }
}

TEST(MovedSchedule, SaysNothingWhereEveryStepKeepsItsRate) {
  EXPECT_EQ(moved_schedule(cosine_of(100), cosine_of(100), 50), "");
  EXPECT_EQ(moved_schedule(cosine_of(100), cosine_of(200), 200), "");  // nothing is left to do
  TrainConfig constant = cosine_of(100), longer = cosine_of(300);
  constant.optimizer.schedule = longer.optimizer.schedule = Decay::constant;
  EXPECT_EQ(moved_schedule(constant, longer, 50), "");
  constant.optimizer.schedule = longer.optimizer.schedule = Decay::wsd;  // the end that fell before is level now
  EXPECT_NE(moved_schedule(constant, longer, 50), "");
}

}  // namespace
}  // namespace plait::train
