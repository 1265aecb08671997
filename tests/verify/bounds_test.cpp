// How errors are measured, and what they are measured against.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/philox.h"
#include "ops/moment_rounding.h"
#include "verify/bounds.h"
#include "verify/findings.h"
#include "verify/verify_cases.h"

namespace plait::verify::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(VerifyDifference, IsRelativeToTheLargestElement) {
  Difference d;
  d.add(1.0, 1.5);
  d.add(-3.0, -2.75);
  EXPECT_EQ(d.largest(), 0.5);
  EXPECT_EQ(d.relative(4.0), 0.125);
  EXPECT_EQ(d.relative(0.0), 0.5) << "a tensor of zeros is compared absolutely";
  EXPECT_EQ(relative_difference(2.0, -4.0), 1.5);
}

TEST(VerifyDifference, NothingPassesForANumberThatIsNone) {
  for (const auto& [a, b] : {std::pair(nan, 1.0), {1.0, nan}, {nan, nan}, {INFINITY, 1.0}, {INFINITY, INFINITY}}) {
    Difference d;
    d.add(a, b);
    d.add(1.0, 1.0);
    EXPECT_EQ(d.relative(1e-30), not_finite);
    ErrorSummary summary;
    summary.add(d.relative(1.0), 1e-5, "x");
    EXPECT_GT(summary.of_bound, 1.0);
  }
}

TEST(VerifyFindings, KeepWhatIsWorstAgainstItsOwnBound) {
  ErrorSummary summary;
  summary.add(1e-3, 1e-2, "loose");
  summary.add(1e-5, 2e-5, "tight");
  summary.add(1e-9, 1.0, "nothing");
  EXPECT_EQ(summary.largest, 1e-3);
  EXPECT_DOUBLE_EQ(summary.of_bound, 0.5);
  EXPECT_EQ(summary.where, "tight");
  VerifyFindings a, b;
  EXPECT_FALSE(a.measured());
  b.of(ErrorKind::loss) = summary;
  b.of(ErrorKind::weight).add(3.0, 1.0, "w");
  a.merge(b);
  a.merge(VerifyFindings{});
  EXPECT_TRUE(a.measured());
  EXPECT_FALSE(a.passed());
  EXPECT_EQ(a.of(ErrorKind::loss).where, "tight");
  b.first_divergence = Divergence{.step = 2, .what = "later"};
  a.first_divergence = Divergence{.step = 1, .part = StepPart::norm, .what = "earlier"};
  a.merge(b);
  const auto back = nlohmann::ordered_json::parse(nlohmann::ordered_json(a).dump()).get<VerifyFindings>();
  EXPECT_EQ(back.first_divergence->what, "earlier");
  EXPECT_EQ(back.first_divergence->part, StepPart::norm);
  EXPECT_EQ(back.of_bound(), a.of_bound());
}

VerifyBounds bounds_of(const std::vector<std::string>& set) {
  const Config config = parse_config(verify_yaml(), set);
  return verify_bounds(
      parallel::make_rank_plan(config, parallel::Decision{}, config.model.vocab, parallel::Layout{}, 0, DeviceKind::host),
      config);
}

TEST(VerifyBounds, GrowWithDepthLengthOfSumsAndRoundoff) {
  const VerifyBounds base = bounds_of({});
  // 2 (u + u √64) √(8 · 6)
  const double u = std::ldexp(1.0, -24);
  EXPECT_NEAR(base.tensor(0), 2 * u * (1 + 8) * std::sqrt(48), 1e-9);
  EXPECT_NEAR(base.gradient(0) - base.tensor(0), 2 * u * (2 + 8), 1e-9);
  const StepFigures step{.loss_tokens = 64, .drift = 0, .logits = 0.1}, sparse{.loss_tokens = 4, .drift = 0, .logits = 0.1};
  EXPECT_LT(base.loss(step), 1e-5);
  EXPECT_NEAR(base.loss(sparse) - base.loss(step), base.tensor(0) * 0.1 * (1 / 2.0 - 1 / 8.0), 1e-12);
  EXPECT_NEAR(base.norm(sparse) - base.norm(step), base.gradient(0) * (1 / 2.0 - 1 / 8.0), 1e-12);
  const StepFigures none{.loss_tokens = 0};
  EXPECT_NEAR(base.loss(none), 2 * u * 2, 1e-12);
  EXPECT_EQ(base.norm(none), base.loss(none));
  EXPECT_LT(base.gradient(0), 1e-4);
  EXPECT_GT(bounds_of({"model.layers=12"}).tensor(0), 1.4 * base.tensor(0));
  EXPECT_GT(bounds_of({"model.ffn=4096"}).tensor(0), 5 * base.tensor(0));
  EXPECT_NEAR(bounds_of({"precision.compute=bf16"}).tensor(0), 2 * std::ldexp(1.0, -8) * std::sqrt(48), 1e-4);
  EXPECT_LT(bounds_of({"precision.compute=fp64"}).gradient(0), 1e-13);
  EXPECT_GT(base.tensor(1e-6), base.tensor(0));
}

// √v̂ = 1e-3 after one step where v = (1 - beta2) 1e-6.
TEST(VerifyBounds, OfAParameterFollowItsGradient) {
  const VerifyBounds b = bounds_of({});
  const double lr = 1e-5, v = (1 - 0.95) * 1e-6;
  EXPECT_NEAR(b.update(1, 0, v, v), 2 * lr * b.gradient(0) * 1e-3 / (1e-3 + 1e-5), 1e-6 * lr * b.gradient(0));
  EXPECT_GT(b.update(1, 0, v / 100, v), 9 * b.update(1, 0, v, v)) << "a smaller gradient has a larger relative error";
  EXPECT_LE(b.update(1, 0, 0, 1e6), 2 * lr) << "AdamW moves nothing further than that";
  EXPECT_GT(b.update(1, 1e-3, v, v), 10 * b.update(1, 0, v, v));
}

// Two runs whose gradients differ a little, with random numbers that lie just where one of them is rounded up and the other, if
// it is smaller, is not: the worst that rounding can do to them.
TEST(VerifyBounds, OfBf16MomentsHoldHoweverTheyAreRounded) {
  EXPECT_EQ(bounds_of({}).moments, 0);
  EXPECT_EQ(bounds_of({"precision.compute=fp64"}).moments, 0);
  const VerifyBounds b = bounds_of({"precision.moments=bf16"});
  EXPECT_EQ(b.moments, std::ldexp(1.0, -7));
  EXPECT_EQ(b.rounded_moments(1, 1e-3, 1e-6, {}), 0) << "the first update reads none";
  const double b1 = b.optimizer.beta1, b2 = b.optimizer.beta2, epsilon = b.optimizer.epsilon;
  const Random random(1, "gradients");
  double tightest = 0;
  for (std::uint64_t trial = 0; trial < 2000; ++trial) {
    struct Run {
      double m = 0, v = 0;
    } a, c;
    MomentsApart apart;
    const double size = std::exp(static_cast<double>(random.normal(10 * trial)) * 4 - 6);
    const auto sign = trial % 3 == 0 ? 1 : -1;
    for (std::int64_t step = 1; step <= 8; ++step) {
      const double g = size * static_cast<double>(random.normal(10 * trial + static_cast<std::uint64_t>(step)));
      const auto move = [&](Run& run, double gradient) {
        run.m = b1 * run.m + (1 - b1) * gradient;
        run.v = b2 * run.v + (1 - b2) * gradient * gradient;
        const auto t = static_cast<double>(step);
        return run.m / (1 - std::pow(b1, t)) / (std::sqrt(run.v / (1 - std::pow(b2, t))) + epsilon);
      };
      const double difference = std::abs(move(a, g) - move(c, g * (1 + sign * 1e-6)));
      const auto round = [](double& one, double& other) {
        const std::uint32_t left_out = std::bit_cast<std::uint32_t>(static_cast<float>(one)) & 0xffffu;
        const std::uint32_t number = left_out == 0 ? 0 : 0x10000u - left_out;
        one = static_cast<double>(static_cast<float>(ops::rounded_by(static_cast<float>(one), number)));
        other = static_cast<double>(static_cast<float>(ops::rounded_by(static_cast<float>(other), number)));
      };
      round(a.m, c.m);
      round(a.v, c.v);
      const double bound = b.rounded_moments(step, a.m, a.v, apart);
      ASSERT_LE(difference, bound + 3e-5) << "step " << step << " of trial " << trial;
      if (step > 1) tightest = std::max(tightest, difference / bound);
      apart = b.moments_apart(a.m, a.v, apart);
    }
  }
  EXPECT_GT(tightest, 0.5);
}

// A configuration is verified as it is, whatever it trains with.
TEST(VerifyBounds, FollowStepsOfTheirOwn) {
  const VerifyBounds base = bounds_of({}), trained = bounds_of({"train.optimizer.lr=10", "train.optimizer.epsilon=1e-12",
                                                                "train.optimizer.warmup=2", "train.optimizer.schedule=cosine"});
  EXPECT_EQ(trained.rates, base.rates);
  EXPECT_EQ(trained.rates, std::vector<double>(2, 1e-5));
  EXPECT_EQ(trained.update(2, 0, 1e-6, 1e-4), base.update(2, 0, 1e-6, 1e-4));
  EXPECT_EQ(bounds_of({"train.optimizer.beta2=0.9"}).optimizer.beta2, 0.9) << "the rest stays";
}

std::vector<ErrorKind> weak_kinds(const VerifyBounds& bounds, const std::vector<StepFigures>& steps) {
  std::vector<ErrorKind> kinds;
  for (const WeakBound& weak : weak_bounds(bounds, steps)) kinds.push_back(weak.kind);
  return kinds;
}

TEST(WeakBounds, AreThoseThatFaultsFitBeneath) {
  const VerifyBounds bounds = bounds_of({});
  const StepFigures start{.loss = 5, .norm = 1, .loss_tokens = 64, .drift = 0, .logits = 0.1};
  StepFigures apart = start;
  apart.drift = 1e-5;
  EXPECT_TRUE(weak_kinds(bounds, {start, apart}).empty());
  apart.drift = 1;
  EXPECT_EQ(weak_kinds(bounds, {start, apart}), (std::vector{ErrorKind::loss, ErrorKind::norm, ErrorKind::parameter}));
  EXPECT_EQ(weak_bounds(bounds, {start, apart, apart}).front().step, 2) << "the first of them";
  EXPECT_THAT(weak_bounds(bounds, {start, apart}).back().text(), testing::HasSubstr("the bound of parameter after step 2 is"));
  StepFigures rounded = start;
  rounded.rounding = 1;
  EXPECT_EQ(weak_kinds(bounds, {start, rounded}), std::vector{ErrorKind::parameter}) << "updates that rounding swallows";
  EXPECT_TRUE(weak_bounds(bounds, {start, rounded}).front().by_rounding);
  StepFigures none;  // that count
  none.drift = 1;
  EXPECT_TRUE(weak_bounds(bounds, {none}).empty());
  EXPECT_TRUE(weak_bounds(bounds, {start, none}).empty()) << "weights from which no update was made";
  EXPECT_EQ(weak_bounds(bounds, {none, rounded, none}).front().step, 2);
}

}  // namespace
}  // namespace plait::verify::test
