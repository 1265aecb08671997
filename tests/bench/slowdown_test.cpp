// Slowdowns from paired runs, and how many messages run beside products.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/message_load.h"
#include "bench/paired_slowdown.h"
#include "core/error.h"

namespace plait::bench::test {
namespace {

using testing::ElementsAre;

TEST(BenchSlowdown, IsThePartOfTheRateThatIsLost) {
  const PairedTimes times{.alone = {90, 90, 90}, .beside = {100, 75}};
  EXPECT_DOUBLE_EQ(slowdown(times, 0), 0.1);
  EXPECT_DOUBLE_EQ(slowdown(times, 1), 1 - 90.0 / 75);  // went faster
}

TEST(BenchSlowdown, AClockThatDriftsCancelsOut) {
  // Work gets slower by 10 from run to run, alone or not; every second run is beside what costs a fifth of its rate.
  PairedTimes times{.alone = {1000}, .beside = {}};
  for (int i = 0; i < 4; ++i) {
    const double now = 1010 + 20 * i;
    times.beside.push_back(now / 0.8);
    times.alone.push_back(now + 10);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(time_alone(times, i), 1010 + 20 * static_cast<double>(i));
    EXPECT_NEAR(slowdown(times, i), 0.2, 1e-12);
  }
  EXPECT_NEAR(noise(times.alone, 5), 0, 1e-12);
}

TEST(BenchSlowdown, NeedsARunAloneOnBothSides) {
  EXPECT_THROW(slowdown({.alone = {1, 1}, .beside = {1, 1}}, 0), InternalError);
  EXPECT_THROW(slowdown({.alone = {1, 1}, .beside = {1}}, 1), InternalError);
}

TEST(BenchSlowdown, SpreadHasTheMedianAndTheEnds) {
  const Spread odd = spread({5, -1, 2});
  EXPECT_THAT((std::vector{odd.median, odd.least, odd.most}), ElementsAre(2, -1, 5));
  const Spread even = spread({4, 1, 2, 9});
  EXPECT_THAT((std::vector{even.median, even.least, even.most}), ElementsAre(3, 1, 9));
  EXPECT_THROW(spread({}), InternalError);
}

TEST(BenchSlowdown, NoiseIsWhatRunsAloneShowAgainstTheirNeighbours) {
  EXPECT_EQ(noise({}, 5), 0);
  EXPECT_EQ(noise({100, 120}, 5), 0);
  EXPECT_DOUBLE_EQ(noise({90, 100, 90}, 5), 0.1);
  EXPECT_NEAR(noise({110, 100, 110}, 5), 0.1, 1e-12);  // faster is noise too
  // Of four: 0.2, 0, 0, 0: three quarters are at most 0.
  EXPECT_DOUBLE_EQ(noise({80, 100, 120, 140, 160, 180}, 5), 0);
  // Of four: 0.1, 0.1 and so on.
  EXPECT_NEAR(noise({100, 110, 100, 110, 100, 110}, 5), 0.1, 1e-12);
  // One outlier touches three of twelve, and three quarters of them are without.
  std::vector<double> times(14, 100);
  times[6] = 200;
  EXPECT_DOUBLE_EQ(noise(times, 5), 0);
  EXPECT_NEAR(noise({110, 100, 110}, 45), 0.1 / 3, 1e-12);  // more rounds
}

TEST(BenchMessageLoad, IsNineTenthsOfTheSlowestThatCompares) {
  EXPECT_THAT(message_loads({1000, 800, 900}, 2), ElementsAre(720, 720, 720));
  EXPECT_THAT(message_loads({1000, 450, 900}, 2), ElementsAre(405, 405, 405));
}

TEST(BenchMessageLoad, WhatCannotCompareGetsItsOwn) {
  EXPECT_THAT(message_loads({1000, 100, 900}, 2), ElementsAre(810, 90, 810));
  // Where the library is the slowest, all compare.
  EXPECT_THAT(message_loads({1000, 100, 90}, 2), ElementsAre(81, 81, 81));
  // Without it the one that carries most is the measure.
  EXPECT_THAT(message_loads({100, 1000, 600}, std::nullopt), ElementsAre(90, 540, 540));
}

TEST(BenchMessageLoad, IsAtLeastTwo) {
  EXPECT_THAT(message_loads({0, 0}, 1), ElementsAre(2, 2));
  EXPECT_THAT(message_loads({1000, 1, 900}, 2), ElementsAre(810, 2, 810));
  EXPECT_THROW(message_loads({}, std::nullopt), InternalError);
  EXPECT_THROW(message_loads({1}, 1), InternalError);
}

TEST(BenchMessageLoad, SpreadsMessagesOverProducts) {
  const auto products = [](int messages, int count) {
    std::vector<int> all;
    for (int i = 0; i < messages; ++i) all.push_back(product_of(i, messages, count));
    return all;
  };
  EXPECT_THAT(products(6, 3), ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(products(2, 4), ElementsAre(0, 2));
  EXPECT_THAT(products(5, 3), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_EQ(product_of(3'999'999, 4'000'000, 1000), 999);  // more than 2^31 in between
}

}  // namespace
}  // namespace plait::bench::test
