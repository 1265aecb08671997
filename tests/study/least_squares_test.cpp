#include "study/least_squares.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/philox.h"
#include "study/statistics.h"

namespace plait::study {
namespace {

Columns random_columns(std::size_t rows, std::size_t count, std::uint64_t seed) {
  const Random random(seed, "columns");
  Columns x(rows, count);
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t i = 0; i < rows; ++i) x.column(c)[i] = static_cast<double>(random.normal(c * rows + i));
  }
  return x;
}

std::vector<double> times(const Columns& x, const std::vector<double>& b) {
  std::vector<double> y(x.rows());
  for (std::size_t c = 0; c < x.columns(); ++c) {
    for (std::size_t i = 0; i < x.rows(); ++i) y[i] += x.column(c)[i] * b[c];
  }
  return y;
}

TEST(LeastSquares, SolvesExactly) {
  const Columns x = random_columns(12, 5, 1);
  const std::vector<double> truth = {1, -2, 3e6, 0, 1e-3};
  const LeastSquares found = least_squares(x, times(x, truth));
  for (std::size_t c = 0; c < truth.size(); ++c) EXPECT_NEAR(found.coefficients[c], truth[c], 1e-7);
}

TEST(LeastSquares, ResidualsAreOrthogonalToTheColumns) {
  const Columns x = random_columns(20, 3, 2);
  const Columns target = random_columns(20, 1, 3);
  const LeastSquares found = least_squares(x, target.column(0));
  std::vector<double> left = times(x, found.coefficients);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = target.column(0)[i] - left[i];
  for (std::size_t c = 0; c < 3; ++c)
    EXPECT_NEAR(std::inner_product(left.begin(), left.end(), x.column(c).begin(), 0.0), 0, 1e-12);
  EXPECT_NEAR(found.squares, std::inner_product(left.begin(), left.end(), left.begin(), 0.0), 1e-12);
}

TEST(LeastSquares, ADependentColumnGetsNothing) {
  Columns x = random_columns(10, 3, 4);
  for (std::size_t i = 0; i < 10; ++i) x.column(2)[i] = 2 * x.column(0)[i] - x.column(1)[i];
  const LeastSquares found = least_squares(x, times(x, {1, 1, 1}));
  EXPECT_EQ(found.coefficients[2], 0);
  EXPECT_NEAR(found.coefficients[0], 3, 1e-12);
  EXPECT_NEAR(found.squares, 0, 1e-20);
}

TEST(LeastSquares, NonnegativeSolutionsMeetTheConditionsOfAMinimum) {
  int bounded = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Columns x = random_columns(9, 3, 10 + seed);
    const Columns target = random_columns(9, 1, 100 + seed);
    const LeastSquares found = nonnegative_least_squares(x, target.column(0));
    std::vector<double> left = times(x, found.coefficients);
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = target.column(0)[i] - left[i];
    // Karush-Kuhn-Tucker: no slope in what is above 0, none downwards in what is 0.
    for (std::size_t c = 0; c < 3; ++c) {
      const double slope = std::inner_product(left.begin(), left.end(), x.column(c).begin(), 0.0);
      EXPECT_GE(found.coefficients[c], 0);
      if (found.coefficients[c] > 0) {
        EXPECT_NEAR(slope, 0, 1e-10);
      }
      EXPECT_LE(slope, 1e-10);
      bounded += found.coefficients[c] == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(bounded, 20);
}

TEST(LeastSquares, LeveragesAddUpToTheColumns) {
  const std::vector<double> leverage = leverages(random_columns(15, 4, 5));
  EXPECT_NEAR(std::accumulate(leverage.begin(), leverage.end(), 0.0), 4, 1e-12);
  for (const double h : leverage) EXPECT_TRUE(h > 0 && h < 1);
}

TEST(Quantiles, InterpolateAndWidenForFewDegreesOfFreedom) {
  std::vector<double> values(1001);
  std::iota(values.rbegin(), values.rend(), 0.0);
  EXPECT_DOUBLE_EQ(sample_quantile(values, 0.5), 500);
  EXPECT_DOUBLE_EQ(sample_quantile({1, 2}, 0.25), 1.25);
  EXPECT_NEAR(bootstrap_interval(values, 0.9, 1e6).low, 50, 0.1) << "of many: the plain percentiles";
  // Student's quantile at 5 % for 10 degrees of freedom is -1.8125, and a normal variable is below that in 3.495 % of cases.
  EXPECT_NEAR(bootstrap_interval(values, 0.9, 10).low, 34.95, 0.1);
  EXPECT_NEAR(bootstrap_interval(values, 0.9, 10).high, 965.05, 0.1);
}

}  // namespace
}  // namespace plait::study
