#include "study/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <pugixml.hpp>
#include <random>

#include "core/error.h"
#include "core/error_of.h"
#include "core/temporary_directory.h"
#include "study/statistics.h"
#include "synthetic_study.h"

namespace plait::study {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(RankTest, KnownValues) {
  // Tables of the Mann–Whitney test: all of one below all of the other is 2 / (m + n choose m).
  EXPECT_NEAR(rank_sum_p({1, 2, 3}, {4, 5, 6}), 0.1, 1e-12);
  EXPECT_NEAR(rank_sum_p({1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}), 2.0 / 252, 1e-12);
  EXPECT_NEAR(least_rank_sum_p(5, 5), 2.0 / 252, 1e-12);
  EXPECT_EQ(rank_sum_p({1, 1, 1}, {1, 1, 1}), 1);
  EXPECT_EQ(rank_sum_p({1}, {2}), 1);
  // One of 3 × 3 pairs the wrong way round: U = 1, and 2 * 2 of the 20 ways are as far out.
  EXPECT_NEAR(rank_sum_p({1, 2, 4}, {3, 5, 6}), 0.2, 1e-12);
}

TEST(RankTest, ExactAndNormalAgree) {
  // Values that alternate: 25 more pairs one way than the mean of 1250, whose deviation is 145.06; and the like for 60.
  const auto alternating = [](int count) {
    std::vector<double> a, b;
    for (int n = 0; n < count; ++n) a.push_back(n), b.push_back(n + 0.5);
    return rank_sum_p(a, b);
  };
  EXPECT_NEAR(alternating(50), 0.8659, 2e-3) << "exact";
  EXPECT_NEAR(alternating(60), 0.8770, 2e-3) << "normal";
}

TEST(RankTest, RarelySignificantWithoutADifference) {
  std::mt19937_64 random(11);
  std::uniform_int_distribution<int> value(0, 9);  // with ties
  int significant = 0;
  for (int n = 0; n < 400; ++n) {
    std::vector<double> a(8), b(7);
    for (double& x : a) x = value(random);
    for (double& x : b) x = value(random);
    significant += rank_sum_p(a, b) <= 0.05;
  }
  EXPECT_LE(significant, 32) << "of 400 at 5 %: 20 at most on average";
}

TEST(RankTest, FactorHasItsInterval) {
  const Factor factor = factor_between({10, 10.1, 9.9, 10, 10.2, 9.8}, {11, 11.1, 10.9, 11, 11.2, 10.8});
  EXPECT_NEAR(factor.value, 1.1, 1e-3);
  EXPECT_LT(factor.interval.low, 1.1);
  EXPECT_GT(factor.interval.high, 1.1);
  EXPECT_GT(factor.interval.low, 1.06);
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> value(0, 0.05);
  int held = 0;
  for (int n = 0; n < 200; ++n) {
    std::vector<double> a(6), b(6);
    for (double& x : a) x = value(random);
    for (double& x : b) x = 1.3 * value(random);
    const Factor f = factor_between(a, b);
    held += f.interval.low <= 1.3 && 1.3 <= f.interval.high;
  }
  EXPECT_GE(held, 182) << "of 200 at 95 %";
}

TEST(RankTest, HolmsCorrection) {
  EXPECT_THAT(holm_corrected({0.01, 0.04, 0.03}),
              ElementsAre(DoubleNear(0.03, 1e-12), DoubleNear(0.06, 1e-12), DoubleNear(0.06, 1e-12)));
  EXPECT_THAT(holm_corrected({0.9, 0.6}), ElementsAre(1, 1));
  EXPECT_THAT(holm_corrected({}), ElementsAre());
}

StudyData bounded(StudyData data) {
  data.config.study.bounds.regression = "2%";
  return data;
}

// Rounds drawn from those of one study, with replacement.
StudyData resampled(const StudyData& study, std::mt19937_64& random) {
  StudyData drawn = study;
  drawn.rounds.clear();
  for (const Point& point : study.points) {
    const auto rounds = study.measured_rounds_of(point.index);
    for (std::size_t n = 0; n < rounds.size(); ++n) {
      Round round = *rounds[random() % rounds.size()];
      round.round = static_cast<int>(n) + 1;
      drawn.rounds.push_back(std::move(round));
    }
  }
  return drawn;
}

TEST(Compare, OneStudysDataIsNoRegressionOfItself) {
  // Twelve points, ten rounds of noise that is as large as the threshold.
  const StudyData study = bounded(test::study({.points = 12, .rounds = 10, .noise = 0.02}));
  std::mt19937_64 random(17);
  int regressions = 0;
  for (int n = 0; n < 100; ++n) {
    const StudyData before = resampled(study, random), after = resampled(study, random);
    regressions += compare(before, after).is_regression();
  }
  EXPECT_LE(regressions, 5);
  const Comparison itself = compare(study, study);
  EXPECT_FALSE(itself.is_regression());
  EXPECT_THAT(itself.points, SizeIs(12));
}

TEST(Compare, FindsAPlantedSlowdownWithItsAccount) {
  const test::StudyShape shape{.points = 6, .rounds = 8, .noise = 0.01};
  test::StudyShape slower = shape;
  slower.seed = 2, slower.slower_buckets = 0.05;
  const StudyData before = bounded(test::study(shape)), after = bounded(test::study(slower));
  const Comparison c = compare(before, after);
  EXPECT_TRUE(c.is_regression());
  for (const ComparedPoint& point : c.points) {
    const int ranks = after.points[static_cast<std::size_t>(point.new_point)].facts->ranks;
    EXPECT_EQ(point.change == Change::slower, ranks > 1) << point.label << ": " << to_string(point.change);
    if (ranks == 1) continue;
    ASSERT_TRUE(point.growth);
    EXPECT_EQ(point.growth->account, "gradient buckets");
    EXPECT_NEAR(point.growth->ms(), 0.05 * point.old_step_ms, 0.02 * point.old_step_ms);
    EXPECT_NEAR(point.factor.value, 1.05, 0.015);
    EXPECT_TRUE(point.has_interval());
  }
  EXPECT_THAT(comparison_text(c, 200), AllOf(HasSubstr("gradient buckets grew most"), Not(HasSubstr("ranges from"))));
  EXPECT_THAT(to_json(c)["points"][0]["interval"], SizeIs(2));
  // The other way round it is a gain.
  EXPECT_EQ(compare(after, before).count(Change::faster), 4U);
  // And below the threshold it is none.
  StudyData tolerant = after;
  tolerant.config.study.bounds.regression = "10%";
  const Comparison allowed = compare(before, tolerant);
  EXPECT_FALSE(allowed.is_regression());
  EXPECT_EQ(allowed.count(Change::same), 6U);
}

TEST(Compare, SaysThatItCannotTell) {
  const StudyData before = bounded(test::study({.points = 6, .rounds = 3, .noise = 0.05})),
                  after = bounded(test::study({.points = 6, .rounds = 3, .noise = 0.05, .seed = 2}));
  const Comparison c = compare(before, after);
  EXPECT_EQ(c.count(Change::cannot_tell), 6U);
  EXPECT_THAT(c.points[0].because, HasSubstr("3 and 3 rounds are too few"));
  // All ratios are no interval of 95 %.
  EXPECT_FALSE(c.points[0].has_interval());
  EXPECT_THAT(c.points[0].because, AllOf(HasSubstr("the factor ranges from"), Not(HasSubstr("95 %"))));
  EXPECT_THAT(comparison_text(c, 200), HasSubstr(" % (ranges from "));
  EXPECT_TRUE(to_json(c)["points"][0]["interval"].is_null());
  const Comparison alike = compare(test::study({.points = 2, .rounds = 1}), test::study({.points = 2, .rounds = 1}));
  EXPECT_EQ(alike.count(Change::cannot_tell), 2U) << "one round says nothing, though both are equal";
}

TEST(Compare, ListsWhatIsInOneStudyOnly) {
  const StudyData large = test::study({.points = 4});
  StudyData small = test::study({.points = 3});
  Comparison c = compare(large, small);
  ASSERT_THAT(c.lone, SizeIs(1));
  EXPECT_EQ(c.lone[0].because, "only in runs/s");
  EXPECT_THAT(c.lone[0].label, HasSubstr("zero=3"));
  EXPECT_THAT(c.points, SizeIs(3));
  EXPECT_FALSE(c.is_regression());
  EXPECT_THAT(compare(small, large).lone, SizeIs(1));
  // What was pruned in one of them is not compared either, with its reason.
  small.points[1].pruning = Pruning::skip, small.points[1].pruned_because = "study.skip: 1 == 1";
  std::erase_if(small.rounds, [](const Round& round) { return round.point == 1; });
  c = compare(large, small);
  EXPECT_THAT(c.points, SizeIs(2));
  ASSERT_THAT(c.lone, SizeIs(2));
  EXPECT_THAT(c.lone[1].because, HasSubstr("not measured in runs/s: pruned: study.skip: 1 == 1"));
  // But for what does not fit any more: it did.
  small.points[1].pruning = Pruning::memory, small.points[1].pruned_because = "1 GiB too much";
  c = compare(large, small);
  EXPECT_EQ(c.count(Change::broken), 1U);
  EXPECT_TRUE(c.is_regression());
  // A study in which nothing was measured guards nothing.
  small.rounds.clear();
  for (Point& point : small.points) point.pruning.reset();
  EXPECT_THAT(error_of<ConfigError>([&] { compare(large, small); }), HasSubstr("no point was measured in both"));
  StudyData other = test::study({.points = 1});
  other.points[0].config = "model: {}";
  EXPECT_THROW(compare(large, other), ConfigError);
}

TEST(Compare, APointThatFailsNowIsARegression) {
  const StudyData before = test::study({.points = 3});
  StudyData after = before;
  after.rounds.push_back(test::failed(1, 7, Outcome::out_of_memory, "cudaMalloc: out of memory"));
  const Comparison c = compare(before, after);
  EXPECT_TRUE(c.is_regression());
  EXPECT_EQ(c.points[1].change, Change::broken);
  EXPECT_THAT(c.points[1].because, HasSubstr("cudaMalloc"));
  EXPECT_FALSE(compare(after, before).is_regression());
}

TEST(Compare, PointsAreFoundByConfigurationWhateverTheRunIsCalled) {
  const StudyData before = test::study({.points = 3});
  StudyData after = before;
  std::ranges::reverse(after.points);
  for (std::size_t n = 0; n < 3; ++n) {
    Point& point = after.points[n];
    point.index = static_cast<int>(n);
    Config config = parse_config(point.config);
    config.run.name = "another", config.run.dir = "/elsewhere", config.study.measure.steps = 99;
    point.config = to_yaml(config);
  }
  for (Round& round : after.rounds) round.point = 2 - round.point;
  after.environment.plait.commit = "another";
  const Comparison c = compare(before, after);
  ASSERT_THAT(c.points, SizeIs(3));
  for (const ComparedPoint& point : c.points) {
    EXPECT_EQ(point.old_point, 2 - point.new_point);
    EXPECT_EQ(point.factor.value, 1);
  }
}

// As the points' ids, which digest what is in a schedule's file, do not know them for the same.
TEST(Compare, PointsWithOtherFilesOfOnePathAreNotTheSame) {
  const plait::test::TemporaryDirectory folder;
  const std::string one = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", other = "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n";
  const auto study_of = [&](const std::string& name, const std::string& schedule) {
    StudyData data = test::study({.points = 1});
    data.folder = std::filesystem::path(folder.path()) / name;
    data.points[0].facts->schedule = folder.path() + "/schedule.csv";
    std::filesystem::create_directories(data.folder / "points/0");
    std::ofstream(data.folder / "points/0/schedule.csv") << schedule;
    return data;
  };
  const StudyData before = study_of("a", one);
  EXPECT_THAT(compare(before, study_of("b", one)).points, SizeIs(1));
  EXPECT_THAT(error_of<ConfigError>([&] { compare(before, study_of("c", other)); }), HasSubstr("no point in common"));
  // Whatever the run is called.
  StudyData renamed = study_of("d", other);
  Config config = parse_config(renamed.points[0].config);
  config.run.name = "another";
  renamed.points[0].config = to_yaml(config);
  EXPECT_THAT(error_of<ConfigError>([&] { compare(before, renamed); }), HasSubstr("no point in common"));
}

TEST(Compare, AnotherMachineIsRefusedOrFlagged) {
  const StudyData before = test::study({.points = 3});
  StudyData after = before;
  after.environment.cpu = "a faster one";
  try {
    compare(before, after);
    FAIL() << "other machines are refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--allow-other-machine"));
    EXPECT_THAT(error.what(), HasSubstr("a faster one"));
  }
  const Comparison c = compare(before, after, {.allow_other_machine = true});
  EXPECT_THAT(c.other_machine, HasSubstr("a faster one"));
  EXPECT_THAT(comparison_text(c, 200), HasSubstr("DIFFERENT MACHINES"));
  EXPECT_FALSE(to_json(c).at("other_machine").is_null());
  after = before;
  after.environment.host = "node2";
  EXPECT_EQ(compare(before, after).other_machine, "") << "the same kind of machine under another name";
}

TEST(Compare, Junit) {
  const test::StudyShape shape{.points = 4, .rounds = 8, .noise = 0.002};
  test::StudyShape slower = shape;
  slower.slower_buckets = 0.05;
  const StudyData before = bounded(test::study(shape));
  StudyData after = bounded(test::study(slower));
  after.rounds.push_back(test::failed(2, 9, Outcome::failed, "a \x01 wire & <more> broke"));
  after.points.pop_back();
  std::erase_if(after.rounds, [](const Round& round) { return round.point == 3; });
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(to_junit(compare(before, after)).c_str()));
  const pugi::xml_node root = document.child("testsuites");
  EXPECT_EQ(root.attribute("tests").as_int(), 4);
  EXPECT_EQ(root.attribute("failures").as_int(), 1);
  EXPECT_EQ(root.attribute("errors").as_int(), 1);
  EXPECT_EQ(root.attribute("skipped").as_int(), 1);
  const pugi::xml_node failure =
      root.child("testsuite").find_child([](const auto& node) { return !node.child("failure").empty(); });
  EXPECT_THAT(failure.child("failure").text().as_string(), HasSubstr("gradient buckets grew most"));
}

}  // namespace
}  // namespace plait::study
