// Medians, their intervals, and slowdowns from paired runs.
#include "core/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "core/philox.h"

namespace plait::test {
namespace {

using testing::ElementsAre;

TEST(Statistics, TheMedianOfAnEvenNumberIsBetweenTheTwoInTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_THROW(median({}), InternalError);
}

TEST(Statistics, RatesAreInPowersOfTen) {
  EXPECT_DOUBLE_EQ(gb_per_s(1e6, 10), 100);  // a million bytes in ten microseconds
  EXPECT_EQ(gb_per_s(1e6, 0), 0);
}

TEST(Statistics, TheIntervalOfAMedianIsThatOfTheTextbooks) {
  // Ranks of the ends, with 95 %, by the binomial distribution: e.g. Conover, Practical Nonparametric Statistics, table A3.
  const auto ranks = [](int count, double confidence) {
    std::vector<double> values(static_cast<std::size_t>(count));
    std::iota(values.rbegin(), values.rend(), 1.0);
    const Interval interval = median_interval(values, confidence);
    return std::vector<double>{interval.low, interval.high};
  };
  EXPECT_THAT(ranks(1, 0.95), ElementsAre(1, 1));
  EXPECT_THAT(ranks(5, 0.95), ElementsAre(1, 5));  // 93.75 %, and there is no wider one
  EXPECT_THAT(ranks(6, 0.95), ElementsAre(1, 6));
  EXPECT_THAT(ranks(9, 0.95), ElementsAre(2, 8));
  EXPECT_THAT(ranks(20, 0.95), ElementsAre(6, 15));
  EXPECT_THAT(ranks(25, 0.95), ElementsAre(8, 18));
  EXPECT_THAT(ranks(100, 0.95), ElementsAre(40, 61));
  EXPECT_THAT(ranks(20, 0.99), ElementsAre(4, 17));
  EXPECT_THROW(median_interval({}), InternalError);
  EXPECT_THROW(median_interval({1}, 1), InternalError);
}

TEST(Statistics, TheIntervalHoldsTheMedianAsOftenAsItSays) {
  // 20 uniform numbers, many times over: ranks 6 and 15 hold the median in 95.86 % of all cases.
  const Random random(1, "interval");
  constexpr int trials = 4000;
  int held = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> values;
    for (std::uint64_t i = 0; i < 20; ++i)
      values.push_back(static_cast<double>(random.bits(static_cast<std::uint64_t>(trial), i) >> 11) * 0x1p-53);
    const Interval interval = median_interval(values);
    held += interval.low <= 0.5 && 0.5 <= interval.high;
  }
  EXPECT_NEAR(static_cast<double>(held) / trials, 0.9586, 0.01);
}

TEST(Statistics, IsThePartOfTheRateThatIsLost) {
  const PairedTimes times{.alone = {90, 90, 90}, .beside = {100, 75}};
  EXPECT_DOUBLE_EQ(slowdown(times, 0), 0.1);
  EXPECT_DOUBLE_EQ(slowdown(times, 1), 1 - 90.0 / 75);  // went faster
}

TEST(Statistics, AClockThatDriftsCancelsOut) {
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

TEST(Statistics, NeedsARunAloneOnBothSides) {
  EXPECT_THROW(slowdown({.alone = {1, 1}, .beside = {1, 1}}, 0), InternalError);
  EXPECT_THROW(slowdown({.alone = {1, 1}, .beside = {1}}, 1), InternalError);
}

TEST(Statistics, SpreadHasTheMedianAndTheEnds) {
  const Spread odd = spread({5, -1, 2});
  EXPECT_THAT((std::vector{odd.median, odd.least, odd.most}), ElementsAre(2, -1, 5));
  const Spread even = spread({4, 1, 2, 9});
  EXPECT_THAT((std::vector{even.median, even.least, even.most}), ElementsAre(3, 1, 9));
  EXPECT_THROW(spread({}), InternalError);
}

TEST(Statistics, NoiseIsWhatRunsAloneShowAgainstTheirNeighbours) {
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

TEST(Statistics, LengtheningIsThePartOfTheTimeThatIsAdded) {
  const PairedTimes times{.alone = {80, 120, 40}, .beside = {110, 80}};
  EXPECT_NEAR(lengthening(times, 0), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(lengthening(times, 1), 0);
}

TEST(Statistics, TheLargestOfSomeDrawsIsExpectedFromAllOfThem) {
  EXPECT_DOUBLE_EQ(mean({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(expected_largest({6, 1, 2}, 1), 3) << "of one draw the mean";
  // Of nine pairs one is 1 1, three more have 2 as the larger, five have 6.
  EXPECT_DOUBLE_EQ(expected_largest({6, 1, 2}, 2), (1 + 3 * 2 + 5 * 6) / 9.0);
  EXPECT_DOUBLE_EQ(expected_largest({4, 4}, 8), 4);
  EXPECT_THROW(expected_largest({}, 2), InternalError);
  EXPECT_THROW(mean({}), InternalError);
}

}  // namespace
}  // namespace plait::test
