#include "study/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "study/runner.h"
#include "study/simulated_points.h"
#include "study/study_data.h"
#include "study_files.h"

namespace plait::study {
namespace {

using test::round;
using testing::DoubleNear;

// Three points: one rank, and two of two ranks.
StudyData data(const std::string& measure = "rounds: 3..5, until: none") {
  StudyData data;
  data.config = test::study_config("/nowhere", measure);
  data.points = {test::point(data.config, 0, 1, 10), test::point(data.config, 1, 2, 6), test::point(data.config, 2, 2, 5)};
  data.baseline = baseline_of(data);
  return data;
}

TEST(Rows, EfficiencyIsARatioWithinRounds) {
  StudyData d = data();
  // The machine gets slower by half from round to round; within a round two ranks take 0.6 of the time of one.
  for (int n = 1; n <= 3; ++n) {
    const double slow = 1 + 0.5 * n;
    d.rounds.push_back(round(0, n, {10 * slow, 10 * slow, 10 * slow}));
    d.rounds.push_back(round(1, n, {6 * slow, 6 * slow, 6 * slow}));
  }
  const auto rows = rows_of(d);
  ASSERT_TRUE(rows[1].efficiency);
  EXPECT_NEAR(rows[1].efficiency->value, 10.0 / 6 / 2, 1e-12);
  EXPECT_NEAR(rows[1].efficiency->interval.low, rows[1].efficiency->interval.high, 1e-9);
  EXPECT_EQ(rows[1].step_ms.value, 12) << "the median of 9, 12 and 15";
  EXPECT_EQ(rows[1].step_ms.interval.low, 9);
  EXPECT_EQ(rows[1].step_ms.interval.high, 15);
  EXPECT_NEAR(rows[1].tokens_per_second_per_device.value, 128 / 2 / 12e-3, 1e-6);
  EXPECT_NEAR(rows[1].prediction_error.value(), 0.5 - 1, 1e-12);
  EXPECT_EQ(rows[0].efficiency->value, 1);
  EXPECT_EQ(rows[2].rounds, 0);
  EXPECT_FALSE(rows[2].efficiency);
}

TEST(Rows, PeakGivesUtilisations) {
  StudyData d = data();
  d.rounds = {round(0, 1, {10})};
  d.rounds[0].measured->peak_flops = 1e9;
  const Row row = rows_of(d)[0];
  EXPECT_NEAR(row.mfu.value(), 6000 * 12'800 / 1e9, 1e-12);
  EXPECT_NEAR(row.hfu.value(), 8000 * 12'800 / 1e9, 1e-12);
}

TEST(Rows, JoulesPerTokenNeedEveryDevicesEnergy) {
  StudyData d = data();
  d.rounds = {round(0, 1, {10, 10})};
  d.rounds[0].measured->devices = {{.device = "cuda:0", .energy_j = 100, .throttle_reasons = {"b"}},
                                   {.device = "cuda:1", .energy_j = 28, .throttle_reasons = {"a", "b"}}};
  EXPECT_FALSE(rows_of(d)[0].joules_per_token) << "there is one rank, and GPUs of two";
  d.rounds[0].measured->memory.resize(2);
  EXPECT_EQ(rows_of(d)[0].joules_per_token, 0.5);
  EXPECT_EQ(rows_of(d)[0].throttle_reasons, (std::vector<std::string>{"a", "b"}));
  d.rounds[0].measured->devices[1].energy_j.reset();
  EXPECT_FALSE(rows_of(d)[0].joules_per_token);
}

TEST(Rows, TheBootstrapIntervalHoldsTheTruthMostOfTheTime) {
  // Ten rounds with a drift that both points share, and noise of 2 % on every step: the true ratio is 0.8.
  std::mt19937_64 random(5);
  std::normal_distribution<double> noise(1, 0.02), drift(1, 0.1);
  int held = 0;
  constexpr int studies = 60;
  for (int s = 0; s < studies; ++s) {
    std::vector<std::vector<double>> a(10), b(10);
    for (int r = 0; r < 10; ++r) {
      const double machine = drift(random);
      for (int n = 0; n < 9; ++n) {
        a[static_cast<std::size_t>(r)].push_back(8 * machine * noise(random));
        b[static_cast<std::size_t>(r)].push_back(10 * machine * noise(random));
      }
    }
    const Estimate ratio = ratio_within_rounds(a, b, static_cast<std::uint64_t>(s));
    EXPECT_NEAR(ratio.value, 0.8, 0.02);
    held += ratio.interval.low <= 0.8 && 0.8 <= ratio.interval.high;
  }
  EXPECT_GE(held, studies * 85 / 100);
}

TEST(Rows, TheSameSeedGivesTheSameInterval) {
  const std::vector<std::vector<double>> a{{1, 2, 3}, {2, 3, 4}}, b{{4, 5, 6}, {5, 6, 7}};
  EXPECT_EQ(ratio_within_rounds(a, b, 3).interval.low, ratio_within_rounds(a, b, 3).interval.low);
  EXPECT_NE(ratio_within_rounds(a, b, 3).interval.low, ratio_within_rounds(a, b, 3).interval.high);
}

TEST(Rows, PlannerIsJudgedByErrorOrderAndRegret) {
  StudyData d = data();
  d.points[1].coordinates = {{"launch.ranks", "2"}, {"layout", "auto"}};
  // Point 2 was predicted to be the fastest of two ranks, but the planner was asked, and said point 1; measured, it is 10 %
  // slower.
  d.rounds = {round(0, 1, {10}), round(1, 1, {6.6}), round(2, 1, {6})};
  const PlannerVerdict verdict = planner_verdict(d, rows_of(d));
  EXPECT_EQ(verdict.points, 3);
  ASSERT_EQ(verdict.regrets.size(), 1U) << "one point of one rank is no choice";
  EXPECT_TRUE(verdict.regrets[0].was_asked);
  EXPECT_EQ(verdict.regrets[0].chosen, 1);
  EXPECT_EQ(verdict.regrets[0].best, 2);
  EXPECT_NEAR(verdict.regret().value(), 0.1, 1e-12);
  EXPECT_NEAR(verdict.worst_error.value(), 1.0 / 6, 1e-12);
  EXPECT_NEAR(verdict.rank_correlation.value(), std::sqrt(0.75), 1e-12) << "two are predicted alike, per rank";
}

// What the planner does not choose tells jobs apart: a bad choice for one is not hidden by another that is slower anyway.
TEST(Rows, RegretIsWithinAJob) {
  StudyData d = data();
  d.points[1].coordinates = {{"launch.ranks", "2"}, {"model.hidden", "8"}, {"layout", "auto"}};
  d.points[2].coordinates = {{"launch.ranks", "2"}, {"model.hidden", "8"}, {"layout", "pipeline=2"}};
  d.rounds = {round(1, 1, {10}), round(2, 1, {5})};
  ASSERT_EQ(planner_verdict(d, rows_of(d)).regrets.size(), 1U);
  EXPECT_NEAR(planner_verdict(d, rows_of(d)).regret().value(), 1, 1e-12);
  d.points[2].coordinates[1].second = "64";
  EXPECT_FALSE(planner_verdict(d, rows_of(d)).regret()) << "two models, each with one layout: there is nothing to choose";
}

// A choice that failed is not replaced by another.
TEST(Rows, AChoiceThatFailedHasNoRegret) {
  StudyData d = data("rounds: 1, until: none");
  d.points[1].coordinates = {{"launch.ranks", "2"}, {"layout", "auto"}};
  d.points.push_back(test::point(d.config, 3, 2, 6));
  d.rounds = {round(0, 1, {10}), test::failed(1, 1, Outcome::out_of_memory, "x"), round(2, 1, {5}), round(3, 1, {6})};
  d.config.study.bounds.regret = "1%";
  PlannerVerdict verdict = planner_verdict(d, rows_of(d));
  EXPECT_EQ(verdict.points, 3);
  EXPECT_FALSE(verdict.regret());
  ASSERT_EQ(verdict.failed_choices.size(), 1U);
  EXPECT_EQ(verdict.failed_choices[0].ranks, 2);
  EXPECT_EQ(verdict.failed_choices[0].chosen, 1);
  auto exceeded = exceeded_study_bounds(d, rows_of(d), verdict);
  ASSERT_EQ(exceeded.size(), 1U);
  EXPECT_THAT(exceeded[0], testing::HasSubstr("the planner's choice for 2 ranks failed: ranks=2 layout=auto (out of memory)"));
  // What it was asked for may be the same as another point.
  d.points[1].coordinates[1].second = "tensor=2";
  EXPECT_EQ(planner_verdict(d, rows_of(d)).regrets.size(), 1U) << "nothing was asked: the choice is the one predicted fastest";
  d.points[3].coordinates[1].second = "auto";
  d.points[3].pruning = Pruning::duplicate, d.points[3].same_as = 1;
  d.rounds.pop_back();
  EXPECT_EQ(planner_verdict(d, rows_of(d)).failed_choices.size(), 1U);
  // Another one that was asked is the choice where it was predicted to be faster.
  d.points[2].coordinates[1].second = "auto";
  verdict = planner_verdict(d, rows_of(d));
  EXPECT_TRUE(verdict.failed_choices.empty());
  // With nothing measured at all it is said too.
  d.points[2].coordinates[1].second = "data=2";
  d.rounds = {test::failed(1, 1, Outcome::failed, "x")};
  exceeded = exceeded_study_bounds(d, rows_of(d), planner_verdict(d, rows_of(d)));
  ASSERT_EQ(exceeded.size(), 1U);
  EXPECT_THAT(exceeded[0], testing::HasSubstr("failed"));
}

TEST(Rows, OneRoundHasNoInterval) {
  StudyData d = data();
  d.rounds = {round(0, 1, {10, 11, 12}), round(1, 1, {6, 7, 8})};
  auto rows = rows_of(d);
  for (const int point : {0, 1}) {
    const Row& row = rows[static_cast<std::size_t>(point)];
    EXPECT_FALSE(row.efficiency.value().has_interval()) << "steps within a round say nothing of another round";
    EXPECT_FALSE(row.step_ms.has_interval());
    EXPECT_FALSE(row.tokens_per_second_per_device.has_interval());
  }
  EXPECT_NEAR(rows[1].efficiency->value, 11.0 / 7 / 2, 1e-12);
  EXPECT_TRUE(summary_json(d)["points"][1]["efficiency"]["interval"].is_null());
  d.rounds.push_back(round(0, 2, {10, 11, 12})), d.rounds.push_back(round(1, 2, {6, 7, 8}));
  rows = rows_of(d);
  EXPECT_TRUE(rows[1].efficiency->has_interval());
  EXPECT_TRUE(rows[1].step_ms.has_interval());
  EXPECT_EQ(summary_json(d)["points"][1]["efficiency"]["interval"].size(), 2U);
}

TEST(Rows, ABoundThatNothingCanJudgeIsExceeded) {
  StudyData d = data();
  d.config.study.bounds = {.efficiency = "90%", .prediction_error = "10%", .regret = "1%"};
  const auto rows = rows_of(d);
  EXPECT_EQ(exceeded_study_bounds(d, rows, planner_verdict(d, rows)).size(), 3U);
}

// A bound on efficiency is of the most ranks that were asked for, also where the machine cannot have them.
TEST(Rows, TheBaselineIsNotItsOwnJudge) {
  StudyData d = data("rounds: 1, until: none");
  d.points.resize(2);
  d.rounds = {round(0, 1, {10})};
  d.config.study.bounds.efficiency = "90%";
  const auto exceeded = [&] { return exceeded_study_bounds(d, rows_of(d), planner_verdict(d, rows_of(d))); };
  d.points[1].pruning = Pruning::memory;
  ASSERT_EQ(exceeded().size(), 1U);
  EXPECT_THAT(exceeded()[0], testing::HasSubstr("nothing was measured to its end on 2 ranks"));
  d.points[1].pruning = Pruning::rule;
  d.points[1].facts.reset(), d.points[1].prediction.reset(), d.points[1].asked_ranks = 8;
  ASSERT_EQ(exceeded().size(), 1U);
  EXPECT_THAT(exceeded()[0], testing::HasSubstr("nothing was measured to its end on 8 ranks"));
  d.points[1].pruning = Pruning::skip;
  EXPECT_TRUE(exceeded().empty()) << "what was to be skipped was not asked for";
  // The other way round: those of fewer ranks do not fit.
  d = data("rounds: 1, until: none");
  d.points[0].pruning = Pruning::memory;
  d.rounds = {round(1, 1, {6}), round(2, 1, {5})};
  d.baseline = baseline_of(d);
  d.config.study.bounds.efficiency = "90%";
  ASSERT_EQ(exceeded().size(), 1U);
  EXPECT_THAT(exceeded()[0], testing::HasSubstr("nothing was measured on fewer than 2 ranks"));
}

TEST(Rows, RankCorrelationSharesEqualRanks) {
  EXPECT_NEAR(rank_correlation({1, 2, 3, 4}, {10, 20, 30, 40}).value(), 1, 1e-12);
  EXPECT_NEAR(rank_correlation({1, 2, 3, 4}, {4, 3, 2, 1}).value(), -1, 1e-12);
  EXPECT_NEAR(rank_correlation({1, 2, 2, 4}, {1, 3, 2, 4}).value(), 0.9486832980505138, 1e-9);
  EXPECT_FALSE(rank_correlation({1, 1}, {1, 2}));
}

TEST(Rows, BoundsAreHeldAgainstTheBestLayoutOfTheMostRanks) {
  StudyData d = data("rounds: 1, until: none");
  d.rounds = {round(0, 1, {10}), round(1, 1, {6}), round(2, 1, {7})};
  d.config.study.bounds = {.efficiency = "90%", .prediction_error = "10%", .regret = "1%"};
  const auto rows = rows_of(d);
  const auto exceeded = exceeded_study_bounds(d, rows, planner_verdict(d, rows));
  ASSERT_EQ(exceeded.size(), 2U);
  EXPECT_THAT(exceeded[0], testing::HasSubstr("regret: 1% allowed, 16.7 % found"));
  EXPECT_THAT(exceeded[1], testing::HasSubstr("at least 90% wanted, 83.3 % found on 2 ranks"));
}

TEST(Rounds, MeasureWhatIsNotSettledAndTheBaselineWithIt) {
  StudyData d = data("rounds: 1..3, until: 5%");
  EXPECT_THAT(points_of_round(d, 1), testing::UnorderedElementsAre(0, 1, 2));
  EXPECT_EQ(points_of_round(d, 1), points_of_round(d, 1));
  d.rounds = {round(0, 1, {10}), round(1, 1, {6}), test::failed(2, 1, Outcome::failed, "x")};
  EXPECT_THAT(points_of_round(d, 2), testing::UnorderedElementsAre(0, 1)) << "one value has no interval";
  d.rounds.push_back(round(0, 2, {10.1})), d.rounds.push_back(round(1, 2, {7}));
  EXPECT_THAT(points_of_round(d, 3), testing::UnorderedElementsAre(0, 1)) << "0 is settled, but is the baseline";
  d.config.run.seed = 8;
  EXPECT_THAT(points_of_round(d, 1), testing::UnorderedElementsAre(0, 1, 2)) << "what ran later changes nothing before it";
}

TEST(SimulatedPoints, TheBandIsWhatMeasurementsJustify) {
  StudyData d = data();
  const std::string from = "nominal figures of CPU core";
  EXPECT_FALSE(prediction_band(d, from));
  d.points.clear();
  for (int n = 0; n < 21; ++n) {
    d.points.push_back(test::point(d.config, n, 1, 10));
    d.rounds.push_back(round(n, 1, {9.0 + 0.1 * n}));
  }
  EXPECT_FALSE(prediction_band(d, "nominal figures of H200")) << "nothing was predicted from these";
  const auto band = prediction_band(d, from);
  ASSERT_TRUE(band);
  EXPECT_NEAR(band->least_ratio, 0.91, 1e-9);
  EXPECT_NEAR(band->most_ratio, 1.09, 1e-9);
}

}  // namespace
}  // namespace plait::study
