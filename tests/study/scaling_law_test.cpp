#include "study/scaling_law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/error_of.h"
#include "study/synthetic_losses.h"

namespace plait::study {
namespace {

using testing::HasSubstr;

void expect_law(const ScalingLaw& found, const ScalingLaw& truth, double share) {
  EXPECT_NEAR(found.alpha, truth.alpha, share * truth.alpha);
  EXPECT_NEAR(found.beta, truth.beta, share * truth.beta);
  EXPECT_NEAR(found.E, truth.E, share * truth.E);
}

TEST(ScalingLaw, ExactLossesGiveTheExponentsWithinAPercent) {
  const ScalingLaw even{1.0, 60, 0.35, 300, 0.35}, steep{0.4, 9e3, 0.9, 40, 0.12}, flat{2.5, 30, 0.08, 5e4, 0.6};
  for (const ScalingLaw& truth : {chinchilla, even, steep, flat}) {
    for (const auto& points : {isoflop_losses(truth, five_sizes, four_budgets),
                               isoflop_losses(truth, {1e5, 4e5, 1e6, 4e6, 1e7}, {1e13, 1e14, 1e15, 1e16}),
                               rectangular_losses(truth, {1e6, 1e7, 1e8, 1e9}, {1e8, 1e9, 1e10, 1e11})}) {
      const ScalingLawFit fit = fit_scaling_law(points, {.bootstraps = 2});
      ASSERT_EQ(fit.refused, "");
      expect_law(fit.law, truth, 0.01);
      EXPECT_NEAR(fit.law.A, truth.A, 0.05 * truth.A);
      EXPECT_NEAR(fit.law.B, truth.B, 0.05 * truth.B);
      EXPECT_LT(fit.residual_scale, 1e-6);
    }
  }
}

// A 90 % interval holds the truth in 85 to 98 of 100 data sets with 1 % noise; so it is neither too narrow nor merely wide.
TEST(ScalingLaw, IntervalsHoldTheTruthAsOftenAsTheySay) {
  const auto exact = isoflop_losses(chinchilla, five_sizes, four_budgets);
  int alpha = 0, beta = 0, exponent = 0, size = 0;
  double width = 0;
  for (std::uint64_t set = 0; set < 100; ++set) {
    const ScalingLawFit fit = fit_scaling_law(with_noise(exact, 0.01, set), {.bootstraps = 100, .seed = set});
    ASSERT_EQ(fit.refused, "") << set;
    const auto holds = [&](const std::function<double(const ScalingLaw&)>& of) {
      const Interval interval = fit.interval(of);
      return interval.low <= of(chinchilla) && of(chinchilla) <= interval.high ? 1 : 0;
    };
    alpha += holds([](const ScalingLaw& l) { return l.alpha; });
    beta += holds([](const ScalingLaw& l) { return l.beta; });
    exponent += holds([](const ScalingLaw& l) { return l.parameter_exponent(); });
    size += holds([](const ScalingLaw& l) { return l.best_parameters(1e21); });
    const Interval interval = fit.interval([](const ScalingLaw& l) { return l.alpha; });
    width += (interval.high - interval.low) / 100;
  }
  for (const int held : {alpha, beta, exponent, size}) {
    EXPECT_GE(held, 85);
    EXPECT_LE(held, 98);
  }
  EXPECT_LT(width, 0.2);
}

TEST(ScalingLaw, OneBadRunCountsLittle) {
  auto points = with_noise(isoflop_losses(chinchilla, five_sizes, four_budgets), 0.001, 1);
  const ScalingLaw clean = fit_scaling_law(points, {.bootstraps = 2}).law;
  points[7].loss *= 1.5;
  const ScalingLawFit fit = fit_scaling_law(points, {.bootstraps = 2});
  ASSERT_EQ(fit.refused, "");
  expect_law(fit.law, clean, 0.05);
}

TEST(ScalingLaw, TheOptimumIsTheLeastLossOfItsBudget) {
  for (const double flops : {1e15, 1e21, 1e25}) {
    const double n = chinchilla.best_parameters(flops), d = chinchilla.best_tokens(flops);
    EXPECT_NEAR(training_flops(n, d) / flops, 1, 1e-12);
    for (const double factor : {0.9, 1.1}) EXPECT_LT(chinchilla.loss(n, d), chinchilla.loss(n * factor, d / factor));
  }
  EXPECT_NEAR(std::log10(chinchilla.best_parameters(1e22) / chinchilla.best_parameters(1e21)), chinchilla.parameter_exponent(),
              1e-12);
}

TEST(ScalingLaw, RefusesWithoutAnInteriorMinimum) {
  const auto refused = [](auto loss) {
    std::vector<LossPoint> points = rectangular_losses(chinchilla, five_sizes, {1e9, 1e10, 1e11, 1e12});
    for (LossPoint& point : points) point.loss = loss(point);
    return fit_scaling_law(points).refused;
  };
  EXPECT_THAT(refused([](const LossPoint& p) { return 2 + 100 * std::pow(p.tokens, -0.3); }), HasSubstr("A is 0"));
  EXPECT_THAT(refused([](const LossPoint& p) { return 2 + 100 * std::pow(p.parameters, -0.3); }), HasSubstr("B is 0"));
  EXPECT_THAT(refused([](const LossPoint& p) { return 9 - 0.2 * std::log(p.parameters) + 100 * std::pow(p.tokens, -0.3); }),
              HasSubstr("no interior minimum"));
  EXPECT_THAT(refused([](const LossPoint& p) { return 50 * std::pow(p.parameters, -0.2) + 90 * std::pow(p.tokens, -0.2); }),
              HasSubstr("E runs to 0"));
}

TEST(ScalingLaw, SaysWhatIsMissing) {
  const auto points = isoflop_losses(chinchilla, five_sizes, four_budgets);
  const auto error = [](const std::vector<LossPoint>& p) { return error_of<ConfigError>([&] { return fit_scaling_law(p); }); };
  EXPECT_THAT(error({points.begin(), points.begin() + 5}), HasSubstr("at least 6 runs"));
  EXPECT_THAT(error({}), HasSubstr("there are 0 runs"));
  EXPECT_THAT(error(rectangular_losses(chinchilla, {1e8, 1e9}, {1e9, 1e10, 1e11, 1e12})), HasSubstr("of 2 sizes"));
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    auto broken = points;
    broken[3].loss = bad;
    EXPECT_THAT(error(broken), HasSubstr("positive, finite"));
  }
}

TEST(ScalingLaw, TheSeedDecidesTheBootstraps) {
  const auto points = with_noise(isoflop_losses(chinchilla, five_sizes, four_budgets), 0.01, 3);
  const auto high = [&](std::uint64_t seed) {
    return fit_scaling_law(points, {.bootstraps = 50, .seed = seed}).interval([](const ScalingLaw& l) { return l.alpha; }).high;
  };
  EXPECT_EQ(high(1), high(1));
  EXPECT_NE(high(1), high(2));
}

}  // namespace
}  // namespace plait::study
