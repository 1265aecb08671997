#include "train/learning_rate.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/error.h"

namespace plait::train {
namespace {

OptimizerConfig optimizer(const std::string& schedule, std::int64_t warmup) {
  OptimizerConfig config;
  config.lr = 0.5;
  config.min_lr_fraction = 0.125;
  config.schedule = schedule;
  config.warmup = warmup;
  config.decay_fraction = 0.2;
  return config;
}

TEST(LearningRate, WarmsUpLinearlyAndReachesThePeak) {
  for (const char* schedule : {"constant", "cosine", "linear", "wsd"}) {
    const LearningRate rate(optimizer(schedule, 4), 100);
    EXPECT_DOUBLE_EQ(rate.at(0), 0.125) << schedule;
    EXPECT_DOUBLE_EQ(rate.at(1), 0.25) << schedule;
    EXPECT_DOUBLE_EQ(rate.at(3), 0.5) << schedule;
    EXPECT_LE(rate.at(4), 0.5) << schedule;
    EXPECT_GT(rate.at(4), 0.495) << schedule << ": no jump after warm-up";
  }
}

TEST(LearningRate, EndsAtTheMinimumOnTheLastStep) {
  for (const char* schedule : {"cosine", "linear", "wsd"}) {
    const LearningRate rate(optimizer(schedule, 4), 100);
    EXPECT_DOUBLE_EQ(rate.at(99), 0.0625) << schedule;
    EXPECT_GT(rate.at(98), rate.at(99)) << schedule;
    EXPECT_DOUBLE_EQ(rate.at(1000), 0.0625) << schedule << ": stays there";
  }
}

TEST(LearningRate, NeverRisesAfterWarmUp) {
  for (const char* schedule : {"constant", "cosine", "linear", "wsd"}) {
    const LearningRate rate(optimizer(schedule, 10), 57);
    for (std::int64_t step = 10; step < 60; ++step) ASSERT_LE(rate.at(step), rate.at(step - 1)) << schedule << " " << step;
  }
}

TEST(LearningRate, Constant) {
  const LearningRate rate(optimizer("constant", 0), 10);
  for (const int step : {0, 5, 9, 20}) EXPECT_DOUBLE_EQ(rate.at(step), 0.5);
}

TEST(LearningRate, LinearAndCosineHalfWay) {
  // Warm-up of 20, decay over 80: step 59 is its 40th.
  EXPECT_DOUBLE_EQ(LearningRate(optimizer("linear", 20), 100).at(59), (0.5 + 0.0625) / 2);
  EXPECT_NEAR(LearningRate(optimizer("cosine", 20), 100).at(59), (0.5 + 0.0625) / 2, 1e-15);
  EXPECT_NEAR(LearningRate(optimizer("cosine", 20), 100).at(39), 0.0625 + 0.4375 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
}

TEST(LearningRate, WsdHoldsAndThenDecays) {
  const LearningRate rate(optimizer("wsd", 10), 100);
  for (std::int64_t step = 9; step < 80; ++step) ASSERT_DOUBLE_EQ(rate.at(step), 0.5) << step;
  EXPECT_DOUBLE_EQ(rate.at(80), 0.5 - 0.4375 / 20);
  EXPECT_DOUBLE_EQ(rate.at(89), (0.5 + 0.0625) / 2);
}

TEST(LearningRate, WsdWithoutDecayAndWithNothingElse) {
  OptimizerConfig config = optimizer("wsd", 0);
  config.decay_fraction = 0;
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(99), 0.5);
  config.decay_fraction = 1;
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(49), (0.5 + 0.0625) / 2);
  config.warmup = 50;  // warm-up comes first where they overlap
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(49), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(config, 100).at(74), (0.5 + 0.0625) / 2);
}

TEST(LearningRate, WarmUpAsLongAsTheRunOrLonger) {
  for (const char* schedule : {"constant", "cosine", "linear", "wsd"}) {
    EXPECT_DOUBLE_EQ(LearningRate(optimizer(schedule, 10), 10).at(9), 0.5) << schedule;
    EXPECT_DOUBLE_EQ(LearningRate(optimizer(schedule, 10), 10).at(10), 0.5) << schedule;
    EXPECT_DOUBLE_EQ(LearningRate(optimizer(schedule, 20), 10).at(9), 0.25) << schedule;
  }
}

TEST(LearningRate, OneStep) {
  EXPECT_DOUBLE_EQ(LearningRate(optimizer("cosine", 0), 1).at(0), 0.0625);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer("cosine", 1), 1).at(0), 0.5);
}

TEST(LearningRate, UnknownScheduleIsAConfigError) {
  try {
    LearningRate(optimizer("exponential", 0), 1);
    FAIL() << "no ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("train.optimizer.schedule=exponential: one of constant, cosine, linear, wsd"));
  }
}

}  // namespace
}  // namespace plait::train
