// Philox against Random123's known answers, and the distributions drawn from it.
#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace plait {
namespace {

constexpr std::uint32_t ones = 0xffffffffu;

// Random123 1.14.0, tests/kat_vectors, "philox4x32 10".
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == PhiloxBlock{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
static_assert(philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
              PhiloxBlock{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
static_assert(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
              PhiloxBlock{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});

TEST(PhiloxTest, KnownAnswersHoldAtRunTimeToo) {
  volatile std::uint32_t pi = 0x243f6a88u;
  const PhiloxBlock expected{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u};
  EXPECT_EQ(philox4x32({pi, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}), expected);
}

double correlation(const Random& a, const Random& b, std::uint64_t lag, std::uint64_t samples) {
  double sum = 0;
  for (std::uint64_t i = 0; i < samples; ++i) sum += double{a.normal(i)} * b.normal(i + lag);
  return sum / static_cast<double>(samples);
}

TEST(RandomTest, ValueDependsOnSeedNameAndIndexOnly) {
  const Random a(1234, "blocks.0.attention.qkv.weight"), again(1234, "blocks.0.attention.qkv.weight");
  const Random other_name(1234, "blocks.1.attention.qkv.weight"), other_seed(1235, "blocks.0.attention.qkv.weight");
  EXPECT_EQ(a.normal(99), a.normal(99));
  EXPECT_EQ(a.bits(5, 7), again.bits(5, 7));
  EXPECT_NE(a.bits(5), other_name.bits(5));
  EXPECT_NE(a.bits(5), other_seed.bits(5));
  EXPECT_NE(a.bits(5, 0), a.bits(5, 1));
  EXPECT_NE(a.bits(5), a.bits(5 + (std::uint64_t{1} << 32)));
  EXPECT_NE(Random(0, "a").bits(0), Random(std::uint64_t{1} << 32, "a").bits(0));
}

TEST(RandomTest, KeysOfNearbySeedsAndNamesDoNotCollide) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (int name = 0; name < 64; ++name) seen.insert(Random(seed, "parameter." + std::to_string(name)).bits(0));
  }
  EXPECT_EQ(seen.size(), 64u * 64u);
}

TEST(RandomTest, FillNormalEqualsNormalFromAnyStart) {
  const Random random(7, "fill");
  for (std::uint64_t first : {0u, 1u, 2u, 3u, 4u, 1001u}) {
    for (std::size_t count : {0u, 1u, 3u, 4u, 5u, 64u, 129u}) {
      std::vector<float> values(count);
      random.fill_normal(first, values);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(values[i], random.normal(first + i)) << first << " + " << i;
    }
  }
}

// Bounds are six standard errors of each statistic, so a correct generator fails one run in 500 million; the draw is fixed.
TEST(RandomTest, NormalHasTheMomentsAndTailsOfANormal) {
  constexpr std::size_t samples = 1 << 18;
  std::vector<float> values(samples);
  Random(42, "normal").fill_normal(0, values);
  double sum = 0, square = 0, cube = 0, fourth = 0;
  std::size_t beyond_two = 0;
  for (const double x : values) {
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    square += x * x;
    cube += x * x * x;
    fourth += x * x * x * x;
    beyond_two += std::abs(x) > 2;
  }
  const double n = samples, error = 6 / std::sqrt(n);
  EXPECT_NEAR(sum / n, 0, error);
  EXPECT_NEAR(square / n, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(cube / n, 0, error * std::sqrt(15.0));
  EXPECT_NEAR(fourth / n, 3, error * std::sqrt(96.0));
  const double tail = 0.0455002639;
  EXPECT_NEAR(static_cast<double>(beyond_two) / n, tail, error * std::sqrt(tail * (1 - tail)));
}

TEST(RandomTest, NeighboursSeedsAndNamesAreUncorrelated) {
  constexpr std::uint64_t samples = 1 << 14;
  const double bound = 6 / std::sqrt(static_cast<double>(samples));
  const Random a(1, "a"), b(1, "b"), next_seed(2, "a");
  for (std::uint64_t lag = 1; lag <= 8; ++lag) EXPECT_NEAR(correlation(a, a, lag, samples), 0, bound) << "lag " << lag;
  EXPECT_NEAR(correlation(a, b, 0, samples), 0, bound);
  EXPECT_NEAR(correlation(a, next_seed, 0, samples), 0, bound);
}

TEST(RandomTest, UniformFillsItsRangeEvenly) {
  constexpr int bins = 64, samples = 1 << 18;
  std::vector<int> counts(bins);
  const Random random(3, "uniform");
  for (int i = 0; i < samples; ++i) {
    const float u = random.uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    ++counts[static_cast<std::size_t>(u * bins)];
  }
  double chi_square = 0;
  const double expected = double{samples} / bins;
  for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 63 + 6 * std::sqrt(2.0 * 63));  // 63 degrees of freedom
  EXPECT_GT(chi_square, 63 - 5 * std::sqrt(2.0 * 63));
}

TEST(RandomTest, BelowCoversItsRangeEvenly) {
  const Random random(4, "below");
  std::vector<int> counts(10);
  for (std::uint64_t i = 0; i < 10000; ++i) ++counts[random.below(10, i)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 6 * std::sqrt(900.0));
  EXPECT_EQ(random.below(1, 123), 0u);
  for (std::uint64_t i = 0; i < 100; ++i)
    EXPECT_LT(random.below((std::uint64_t{1} << 63) + 1, i), (std::uint64_t{1} << 63) + 1);
}

}  // namespace
}  // namespace plait
