// The report of a study of losses.
#include "study/report/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "study/display.h"
#include "synthetic_losses.h"
#include "synthetic_study.h"

namespace plait::study {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

// A point per loss, measured once.
StudyData study_of(const std::vector<LossPoint>& losses) {
  StudyData data = test::study({.points = static_cast<int>(losses.size()), .rounds = 1});
  data.config.study.scaling = Scaling::isoflop;
  for (std::size_t n = 0; n < losses.size(); ++n) {
    data.points[n].facts->matrix_parameters = static_cast<std::int64_t>(losses[n].parameters);
    data.points[n].coordinates = {{"parameters", fmt::format("{:g}", losses[n].parameters)},
                                  {"flops", fmt::format("{:g}", training_flops(losses[n].parameters, losses[n].tokens))}};
    data.rounds[n].measured->validation_loss = losses[n].loss;
    data.rounds[n].measured->tokens = static_cast<std::int64_t>(losses[n].tokens);
  }
  return data;
}

std::vector<std::string> section_ids(const Report& report) {
  std::vector<std::string> found;
  for (const Section& section : report.sections) found.push_back(section.id);
  return found;
}

TEST(StudyOfLosses, SaysTheBestSizeWhatTheLossIsMadeOfAndWhatTenTimesTheComputeBrings) {
  const double largest = four_budgets.back();
  const Report report = make_report(study_of(with_noise(isoflop_losses(chinchilla, five_sizes, four_budgets), 0.001, 1)));
  ASSERT_THAT(report.sentences, SizeIs(3));
  EXPECT_THAT(report.sentences[0], HasSubstr(fmt::format("For {:.2g} FLOPs, the largest budget, the best size is", largest)));
  // The law's E, and the losses of the best size and its tokens.
  EXPECT_THAT(report.sentences[1], testing::ContainsRegex("1\\.[67][0-9]* is beyond any size"));
  EXPECT_THAT(report.sentences[2], HasSubstr("Ten times the compute"));
  EXPECT_THAT(section_ids(report), ElementsAre("losses", "law", "memory", "points", "environment"));
  const Section& losses = *report.find("losses");
  EXPECT_THAT(losses.chart->series, SizeIs(8)) << "four budgets, and the law of each";
  EXPECT_THAT(losses.chart->series[0].values, SizeIs(5));
  EXPECT_THAT(losses.table.rows, SizeIs(20));
  EXPECT_EQ(report.find("law")->table.rows[2][0].text, "alpha");
  EXPECT_NEAR(std::stod(report.find("law")->table.rows[2][1].text), chinchilla.alpha, 0.1 * chinchilla.alpha);
}

TEST(StudyOfLosses, WithoutALawSaysWhyAndWhatWouldGiveOne) {
  const std::vector<LossPoint> few = isoflop_losses(chinchilla, {1e7, 2e7}, {1e18, 2e18});
  const Report report = make_report(study_of(few));
  EXPECT_THAT(report.sentences[0], HasSubstr("There is no law"));
  EXPECT_THAT(report.sentences[1], HasSubstr("there are 4 runs, of 2 sizes"));
  EXPECT_THAT(report.find("losses")->chart->series, SizeIs(2)) << "the losses of both budgets, and no law";
  StudyData none = study_of(few);
  none.rounds.clear();
  EXPECT_THAT(make_report(none).sentences[0], HasSubstr("No point has a validation loss"));
}

// Losses on other tokens, or by another learning rate, are not of one law.
TEST(StudyOfLosses, OtherAxesWithSeveralValuesLeaveNoLaw) {
  std::vector<LossPoint> twice = isoflop_losses(chinchilla, five_sizes, four_budgets);
  const std::size_t half = twice.size();
  for (std::size_t n = 0; n < half; ++n) twice.push_back({twice[n].parameters, twice[n].tokens, twice[n].loss + 0.1});
  StudyData data = study_of(twice);
  for (std::size_t n = 0; n < twice.size(); ++n)
    data.points[n].coordinates.emplace_back("train.optimizer.lr", n < half ? "1e-3" : "2e-3");
  const Report report = make_report(data);
  EXPECT_THAT(report.sentences[0], HasSubstr("There is no law"));
  EXPECT_THAT(report.sentences[1], HasSubstr("points differ in train.optimizer.lr too"));
  EXPECT_THAT(report.sentences[2], HasSubstr("A study of its own for each value of train.optimizer.lr"));
  const Section& losses = *report.find("losses");
  EXPECT_THAT(losses.text, HasSubstr("cannot be compared where points differ in train.optimizer.lr"));
  EXPECT_THAT(losses.chart->series, SizeIs(8)) << "four budgets of each rate, and no law";
  EXPECT_THAT(losses.chart->series[7].values, SizeIs(5));
  EXPECT_THAT(losses.chart->series[7].name, HasSubstr("lr=2e-3"));
  EXPECT_THAT(report.find("law")->table.rows, testing::IsEmpty());
  StudyData one = study_of(isoflop_losses(chinchilla, five_sizes, four_budgets));
  for (Point& point : one.points) point.coordinates.emplace_back("train.optimizer.lr", "1e-3");
  EXPECT_THAT(make_report(one).sentences[0], HasSubstr("the largest budget, the best size is")) << "one value is no matter";
}

TEST(StudyOfLosses, TheTableHasLossesInPlaceOfSpeeds) {
  const std::string table = result_table(study_of(isoflop_losses(chinchilla, five_sizes, four_budgets)), 200);
  EXPECT_THAT(table, HasSubstr("FLOPs    loss"));
  EXPECT_THAT(table, HasSubstr("the best size is"));
  EXPECT_THAT(table, Not(HasSubstr("planner:")));
}

}  // namespace
}  // namespace plait::study
