#include "study/isoflop_profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "study/synthetic_losses.h"

namespace plait::study {
namespace {

using testing::HasSubstr;

// Sizes around the best one of a budget, a factor apart.
std::vector<double> sizes_around(double flops, double factor) {
  std::vector<double> sizes;
  for (int i = -2; i <= 2; ++i) sizes.push_back(chinchilla.best_parameters(flops) * std::pow(factor, i));
  return sizes;
}

std::vector<LossPoint> centred_losses(const std::vector<double>& budgets, double factor) {
  std::vector<LossPoint> points;
  for (const double flops : budgets) {
    for (const LossPoint& point : isoflop_losses(chinchilla, sizes_around(flops, factor), {flops})) points.push_back(point);
  }
  return points;
}

TEST(IsoflopProfiles, FindTheBestSizeOfEachBudgetAndThePowerLaw) {
  const std::vector<double> budgets = {1e19, 1e20, 1e21, 1e22};
  const IsoflopFit fit = fit_isoflop_profiles(centred_losses(budgets, 1.3), {.bootstraps = 20});
  ASSERT_EQ(fit.budgets.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(fit.budgets[i].refused, "");
    EXPECT_EQ(fit.budgets[i].runs, 5);
    EXPECT_NEAR(fit.budgets[i].flops / budgets[i], 1, 1e-9);
    // A parabola is not the law's own curve.
    EXPECT_NEAR(fit.budgets[i].parameters / chinchilla.best_parameters(budgets[i]), 1, 0.02);
    EXPECT_NEAR(training_flops(fit.budgets[i].parameters, fit.budgets[i].tokens) / budgets[i], 1, 1e-9);
  }
  ASSERT_EQ(fit.refused, "");
  EXPECT_NEAR(fit.exponent, chinchilla.parameter_exponent(), 0.005);
  EXPECT_NEAR(fit.coefficient * std::pow(1e20, fit.exponent), fit.budgets[1].parameters, 0.01 * fit.budgets[1].parameters);
}

TEST(IsoflopProfiles, IntervalsHoldTheTruth) {
  const auto exact = centred_losses({1e19, 1e20, 1e21, 1e22}, 1.8);
  // What the parabola finds without noise; its own bias is not the interval's matter.
  const double truth = fit_isoflop_profiles(exact, {.bootstraps = 2}).exponent;
  int held = 0;
  for (std::uint64_t set = 0; set < 100; ++set) {
    const IsoflopFit fit = fit_isoflop_profiles(with_noise(exact, 0.002, set), {.bootstraps = 100, .seed = set});
    if (fit.refused.empty() && fit.exponent_interval.low <= truth && truth <= fit.exponent_interval.high) ++held;
  }
  EXPECT_GE(held, 85);
  EXPECT_LE(held, 99);
}

TEST(IsoflopProfiles, RefuseABudgetWhoseMinimumIsNotInsideItsSizes) {
  std::vector<LossPoint> points = isoflop_losses(chinchilla, sizes_around(1e20, 1.5), {1e20});
  for (const double flops : {1e17, 1e23}) {
    for (const LossPoint& point : isoflop_losses(chinchilla, sizes_around(1e20, 1.5), {flops})) points.push_back(point);
  }
  const IsoflopFit fit = fit_isoflop_profiles(points, {.bootstraps = 10});
  ASSERT_EQ(fit.budgets.size(), 3u);
  EXPECT_THAT(fit.budgets[0].refused, HasSubstr("Add smaller sizes")) << "the small budget";
  EXPECT_EQ(fit.budgets[1].refused, "");
  EXPECT_THAT(fit.budgets[2].refused, HasSubstr("Add larger sizes"));
  EXPECT_THAT(fit.refused, HasSubstr("needs 3 budgets"));
}

// A parabola through all of these sizes has its minimum inside them, where the lowest loss is at the smallest or the largest.
TEST(IsoflopProfiles, RefuseABudgetWhoseLowestLossIsAtAnEnd) {
  const ScalingLaw law{1.5, 20, 0.34, 400, 0.4};
  const std::vector<double> sizes = {32768, 114688, 212992, 819200, 1605632, 6356992};
  const IsoflopFit low = fit_isoflop_profiles(isoflop_losses(law, sizes, {3e11, 1e12}), {.bootstraps = 2});
  ASSERT_EQ(low.budgets.size(), 2u);
  for (const IsoflopMinimum& budget : low.budgets) {
    EXPECT_THAT(budget.refused, HasSubstr("rises from the smallest, N=3.28e+04. Add smaller sizes"));
    EXPECT_EQ(budget.runs, 6);
    EXPECT_EQ(budget.fitted, 0);
  }
  const IsoflopFit high = fit_isoflop_profiles(isoflop_losses(law, sizes, {1e17}), {.bootstraps = 2});
  ASSERT_EQ(high.budgets.size(), 1u);
  EXPECT_THAT(high.budgets[0].refused, HasSubstr("still falls at the largest, N=6.36e+06. Add larger sizes"));
}

// Over four decades of sizes losses are far from a parabola, and those far out on one side would pull its minimum to them.
TEST(IsoflopProfiles, AreFittedAroundTheLowestLoss) {
  const ScalingLaw law{1.5, 20, 0.34, 400, 0.4};
  std::vector<double> sizes;
  for (double n = 4096; n < 1e8; n *= 2) sizes.push_back(n);
  const std::vector<double> budgets = {1e12, 1e13, 1e14, 1e15};
  const IsoflopFit fit = fit_isoflop_profiles(isoflop_losses(law, sizes, budgets), {.bootstraps = 2});
  ASSERT_EQ(fit.budgets.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(fit.budgets[i].refused, "");
    EXPECT_EQ(fit.budgets[i].runs, static_cast<int>(sizes.size()));
    EXPECT_EQ(fit.budgets[i].fitted, 5);
    EXPECT_NEAR(fit.budgets[i].parameters / law.best_parameters(budgets[i]), 1, 0.04);
  }
  EXPECT_NEAR(fit.exponent, law.parameter_exponent(), 0.005);
}

// Of one size the mean counts, so that a single lucky run at an end refuses no budget.
TEST(IsoflopProfiles, RunsOfOneSizeCountByTheirMean) {
  const std::vector<double> sizes = sizes_around(1e20, 2);
  std::vector<LossPoint> points = isoflop_losses(chinchilla, sizes, {1e20});
  for (const double off : {-0.06, 0.06}) {
    LossPoint point = points.front();
    point.loss += off;
    points.push_back(point);
  }
  const IsoflopFit fit = fit_isoflop_profiles(points, {.bootstraps = 2});
  ASSERT_EQ(fit.budgets.size(), 1u);
  EXPECT_EQ(fit.budgets[0].refused, "");
  EXPECT_NEAR(fit.budgets[0].parameters / chinchilla.best_parameters(1e20), 1, 0.05);
}

TEST(IsoflopProfiles, ABudgetIsWhatWholeStepsMakeOfIt) {
  auto points = centred_losses({1e19, 1e20}, 1.3);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].tokens *= 1 + 0.004 * static_cast<double>(i % 5);
  points.push_back({1e9, 1e9, 3.0});  // a run by itself
  EXPECT_EQ(fit_isoflop_profiles(points, {.bootstraps = 2}).budgets.size(), 2u);
}

}  // namespace
}  // namespace plait::study
