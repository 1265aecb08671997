#include "data/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace plait::data {
namespace {

using Weights = std::vector<double>;

TEST(Blend, NumbersTheSamplesOfEachSource) {
  for (const Weights& weights : {Weights{1}, Weights{1, 1}, Weights{0.7, 0.3}, Weights{5, 1, 3}, Weights{1, 1, 1, 1, 1, 1, 1},
                                 Weights{1000, 1, 10, 100}}) {
    const Blend blend(weights);
    std::vector<std::int64_t> counts(weights.size());
    for (std::int64_t n = 0; n < 3000; ++n) {
      if (n % 97 == 0) {
        ASSERT_EQ(blend.taken(n), counts);
      }
      const auto [source, number] = blend.at(n);
      ASSERT_EQ(number, counts[source]++) << "sample " << n;
    }
  }
}

TEST(Blend, KeepsSharesOverEveryStretch) {
  const Weights weights = {0.7, 0.05, 0.001, 0.149, 0.1};
  const Blend blend(weights);
  const double most = 2 * std::ceil(std::log2(weights.size()));
  for (const std::int64_t from : {std::int64_t{0}, std::int64_t{12345}, std::int64_t{1} << 40}) {
    const auto before = blend.taken(from);
    for (const std::int64_t count : {1, 10, 1000, 100'000, 100'000'000}) {
      const auto after = blend.taken(from + count);
      for (std::size_t k = 0; k < weights.size(); ++k) {
        const double expected = weights[k] * static_cast<double>(count), taken = static_cast<double>(after[k] - before[k]);
        EXPECT_LE(std::abs(taken - expected), most / 2 + 1e-3) << "source " << k << ", " << count << " from " << from;
        if (count >= 100'000'000) {
          EXPECT_NEAR(taken / expected, 1, 1e-3);
        }
      }
    }
  }
}

TEST(Blend, TakesAnyScaleAndSize) {
  EXPECT_EQ(Blend(Weights{7, 3}).taken(1000), Blend(Weights{0.7, 0.3}).taken(1000));
  const Blend blend(Weights{1, 1e-15, 2});
  const auto taken = blend.taken(std::int64_t{1} << 61);
  EXPECT_EQ(std::accumulate(taken.begin(), taken.end(), std::int64_t{0}), std::int64_t{1} << 61);
  EXPECT_GT(taken[1], 0) << "no source is left out for good";
  EXPECT_GE(blend.at((std::int64_t{1} << 61) - 1).number, 0);
  EXPECT_THROW(Blend(Weights{}), InternalError);
  EXPECT_THROW((Blend(Weights{1, 0})), InternalError);
}

}  // namespace
}  // namespace plait::data
