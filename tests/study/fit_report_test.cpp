#include "study/fit_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "study/synthetic_losses.h"

namespace plait::study {
namespace {

using testing::HasSubstr;

TEST(FitReport, SaysTheLawItsOptimumAndTheBudgets) {
  const auto points = with_noise(isoflop_losses(chinchilla, {1e8, 3e8, 1e9, 3e9, 1e10}, {1e20, 1e21, 1e22, 1e23}), 0.002, 5);
  const LossFit fit = fit_losses(points, {.bootstraps = 100});
  const auto json = nlohmann::json::parse(to_json(fit).dump());
  EXPECT_EQ(json["runs"], 20);
  EXPECT_TRUE(json["refused"].is_null());
  for (const char* name : {"E", "A", "alpha", "B", "beta"}) {
    const auto& value = json["law"][name];
    EXPECT_LT(value["low"], value["value"]) << name;
    EXPECT_GT(value["high"], value["value"]) << name;
  }
  EXPECT_NEAR(json["law"]["alpha"]["value"].get<double>(), 0.34, 0.05);
  const auto& optimum = json["optimum"];
  EXPECT_NEAR(optimum["parameter_exponent"]["value"].get<double>() + optimum["token_exponent"]["value"].get<double>(), 1, 1e-9);
  ASSERT_EQ(optimum["budgets"].size(), 5u);
  const auto& last = optimum["budgets"][4];
  EXPECT_EQ(last["extrapolated"], true);
  EXPECT_EQ(optimum["budgets"][3]["extrapolated"], false);
  EXPECT_NEAR(last["flops"].get<double>(), 1e24, 1e20);
  EXPECT_NEAR(6 * last["parameters"]["value"].get<double>() * last["tokens"]["value"].get<double>() / 1e24, 1, 1e-6);
  EXPECT_EQ(json["isoflop"]["budgets"].size(), 4u);

  const std::string page = to_markdown(fit);
  EXPECT_THAT(page, HasSubstr("| alpha |"));
  EXPECT_THAT(page, HasSubstr("(extrapolated)"));
  EXPECT_THAT(page, HasSubstr("## Budget by budget"));
}

// The best size of every budget is far above those that were run: their exact law is known, but where its optimum is was not
// seen.
TEST(FitReport, RefusesWhereNoBudgetHasItsBestSizeInside) {
  const LossFit fit =
      fit_losses(isoflop_losses(chinchilla, {1e6, 2e6, 4e6, 8e6, 2e7}, {1e20, 1e21, 1e22, 1e23}), {.bootstraps = 10});
  EXPECT_EQ(fit.law.refused, "");
  EXPECT_THAT(fit.refused(), HasSubstr("Add larger sizes"));
  const auto json = to_json(fit);
  EXPECT_TRUE(json["law"].is_null());
  EXPECT_TRUE(json["optimum"].is_null());
  EXPECT_THAT(json["isoflop"]["budgets"][0]["refused"].get<std::string>(), HasSubstr("no minimum inside the sizes"));
  EXPECT_THAT(to_markdown(fit), HasSubstr("Refused: no budget"));
}

TEST(FitReport, LossesThatAreNotByBudgetHaveNoProfiles) {
  const LossFit fit = fit_losses(rectangular_losses(chinchilla, {1e7, 1e8, 1e9}, {1e9, 7e9, 1e11}), {.bootstraps = 10});
  EXPECT_EQ(fit.refused(), "");
  EXPECT_TRUE(to_json(fit)["isoflop"]["budgets"].empty());
  EXPECT_EQ(fit.budgets.size(), 3u);
}

}  // namespace
}  // namespace plait::study
