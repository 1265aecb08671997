// How errors are measured, and what they are measured against.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/bounds.h"
#include "verify/findings.h"
#include "verify/verify_cases.h"
#include "verify/weak_bounds.h"

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
  return verify_bounds(parallel::make_rank_plan(config, config.model.vocab, parallel::Layout{}, 0, DeviceKind::host), config);
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
}

}  // namespace
}  // namespace plait::verify::test
