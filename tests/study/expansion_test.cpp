#include "study/expansion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/error_of.h"
#include "model/model_flops.h"
#include "model/model_shape.h"
#include "study/isoflop_grid.h"
#include "verify/layouts.h"

namespace plait::study {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Config study(const std::string& section) {
  return parse_config(
      "run: {name: r}\nmodel: {layers: 4, hidden: 32, heads: 4, vocab: 64}\ndata: {tokenizer: random, sequence_length: 16}\n"
      "train: {steps: 3, global_batch: 8, micro_batch: 2}\nlaunch: {device: cpu}\nstudy: {" +
      section + "}\n");
}

TEST(Expansion, EveryCombinationTheLastAxisFastest) {
  const auto drafts = expand(study("axes: {launch.ranks: [1, 2], train.micro_batch: [1, 2]}"), 2);
  ASSERT_EQ(drafts.size(), 4U);
  EXPECT_THAT(drafts[1].coordinates, ElementsAre(Pair("launch.ranks", "1"), Pair("train.micro_batch", "2")));
  EXPECT_EQ(drafts[2].config.value().train.micro_batch, 1);
  EXPECT_EQ(drafts[2].config.value().launch.ranks, 2);
  EXPECT_EQ(drafts[2].config.value().parallel.size[plait::Axis::data], 2) << "what the ranks leave";
}

TEST(Expansion, WithoutAxesTheConfigurationItself) {
  const auto drafts = expand(study("scaling: strong"), 3);
  ASSERT_EQ(drafts.size(), 1U);
  EXPECT_TRUE(drafts[0].coordinates.empty());
  EXPECT_EQ(drafts[0].ranks, 3) << "nothing says how many";
}

TEST(Expansion, APointsRanksAreStartedByItsOwnProcess) {
  const auto drafts = expand(study("axes: {launch.mode: [auto, threads, processes, external]}"), 2);
  ASSERT_EQ(drafts.size(), 4U);
  EXPECT_EQ(drafts[0].config.value().launch.mode, LaunchMode::threads) << "also where a launcher has started the study";
  EXPECT_EQ(drafts[1].config.value().launch.mode, LaunchMode::threads);
  EXPECT_EQ(drafts[2].config.value().launch.mode, LaunchMode::processes);
  EXPECT_EQ(drafts[3].pruning, Pruning::rule);
  EXPECT_THAT(drafts[3].because, HasSubstr("launch.mode"));
  EXPECT_FALSE(drafts[3].config);
  Config outside = study("scaling: strong");
  outside.launch.mode = LaunchMode::external;
  EXPECT_THAT(error_of<ConfigError>([&] { expand(outside, 2); }), HasSubstr("must be threads or processes"));
}

TEST(Expansion, ASizeThatIsNoneIsPrunedAndReplacedByNothing) {
  const auto drafts = expand(study("axes: {launch.ranks: [abc, 1.5, -1, 1e3, 3000000], layout: [\"pipeline=1\", all]}"), 2);
  ASSERT_EQ(drafts.size(), 10U);
  for (const Draft& draft : drafts) {
    EXPECT_EQ(draft.pruning, Pruning::rule) << draft.coordinates[0].second;
    EXPECT_THAT(draft.because, HasSubstr("launch.ranks=" + draft.coordinates[0].second));
    EXPECT_THAT(draft.because, HasSubstr("from 1 to 65536"));
  }
  for (const Draft& draft : expand(study("axes: {layout: [\"data=foo\"]}"), 2)) EXPECT_EQ(draft.pruning, Pruning::rule);
}

TEST(Expansion, AllLayoutsAreSimulatedWithoutAnAxisOfRanks) {
  EXPECT_GT(expand_at(study("axes: {layout: [all]}"), 16).size(), 4U);
  EXPECT_GT(expand_at(study("axes: {launch.ranks: [auto], layout: [all]}"), 16).size(), 4U);
}

TEST(Expansion, IsoflopPointsHaveTheShapeAndTheStepsOfTheirBudget) {
  const Config config = study(
      "scaling: isoflop, measure: {rounds: 1}, axes: {parameters: [3e4, 2e5], flops: [1e10, 2e10], launch.ranks: [1, 2]}");
  int asked = 0;
  const auto drafts = expand(config, 1, [&](const Config&) { return ++asked, 64; });
  ASSERT_EQ(drafts.size(), 8U);
  EXPECT_EQ(asked, 8);
  for (std::size_t n = 0; n < drafts.size(); ++n) {
    const Config& point = drafts[n].config.value();
    const double size = n < 4 ? 3e4 : 2e5, flops = n / 2 % 2 == 0 ? 1e10 : 2e10;
    const auto terms = model::flop_terms(model::resolve_shape(point.model, 64, point.data.sequence_length), 16);
    const auto parameters = static_cast<double>(terms.matrix_parameters);
    EXPECT_NEAR(parameters / size, 1, size_tolerance);
    EXPECT_NEAR(6 * parameters * static_cast<double>(point.train.steps) * 8 * 16 / flops, 1, budget_rounding);
    EXPECT_EQ(point.launch.ranks, n % 2 == 0 ? 1 : 2);
  }
  const auto none = expand(study("scaling: isoflop, measure: {rounds: 1}, axes: {parameters: [10], flops: [1e10]}"), 1);
  EXPECT_EQ(none.at(0).pruning, Pruning::rule);
  EXPECT_THAT(none[0].because, HasSubstr("flops=1e10 cannot be: "));
  const auto because = [](const std::string& flops) {
    const std::string axes = "axes: {parameters: [3e4], flops: [" + flops + "]}";
    return expand(study("scaling: isoflop, measure: {rounds: 1}, " + axes), 1).at(0).because;
  };
  EXPECT_THAT(because("1e300"), HasSubstr("study.axes flops=1e+300 must be above 0 and at most 1e+40"));
  EXPECT_THAT(because("1e3"), HasSubstr("flops=1e3 cannot be: 1e+03 FLOPs are too few for one step"));
}

TEST(Expansion, OnlyIsoflopHasBudgetsAndSizes) {
  const auto error = [](const std::string& section) { return error_of<ConfigError>([&] { study(section); }); };
  EXPECT_THAT(error("axes: {flops: [1e18]}"), HasSubstr("only study.scaling=isoflop takes"));
  EXPECT_THAT(error("scaling: isoflop, measure: {rounds: 1}, axes: {flops: [1e18]}"), HasSubstr("both flops and parameters"));
  EXPECT_THAT(error("scaling: isoflop, axes: {flops: [1e18], parameters: [1e6]}"), HasSubstr("must be 1"));
  EXPECT_THAT(error("scaling: isoflop, measure: {rounds: 1}, axes: {flops: [much], parameters: [1e6]}"),
              HasSubstr("a number above 0"));
}

TEST(Expansion, LayoutsLeaveDataToTheRanks) {
  const auto drafts = expand(
      study("axes: {launch.ranks: [4], layout: [\"pipeline=2 schedule=zb-v\", \"data=2 tensor=2\", \"tensor=3\", auto]}"), 2);
  ASSERT_EQ(drafts.size(), 4U);
  EXPECT_EQ(drafts[0].config.value().parallel.size[plait::Axis::data], 2);
  EXPECT_EQ(schedule_name(drafts[0].config->parallel), "zb-v");
  EXPECT_EQ(drafts[1].config.value().parallel.size[plait::Axis::tensor], 2);
  EXPECT_EQ(drafts[2].pruning, Pruning::rule);
  EXPECT_THAT(drafts[2].because, HasSubstr("parallel.tensor"));
  EXPECT_THAT(keys_left_to_planner(drafts[3].config.value()), testing::Contains("parallel.pipeline"));
}

TEST(Expansion, AllStandsForEveryLayoutOfAsManyRanks) {
  const Config config = study("axes: {layout: all, launch.ranks: [1, 4]}");
  const auto drafts = expand(config, 2);
  const auto one = verify::all_layouts(1, config.parallel), four = verify::all_layouts(4, config.parallel);
  ASSERT_EQ(drafts.size(), one.size() + four.size());
  for (std::size_t n = 0; n < four.size(); ++n)
    EXPECT_THAT(drafts[one.size() + n].coordinates, ElementsAre(Pair("layout", four[n].text), Pair("launch.ranks", "4")));
  const auto ran = std::ranges::count_if(drafts, [](const Draft& d) { return d.config.has_value(); });
  const auto pruned = std::ranges::count(drafts, std::optional(Pruning::rule), &Draft::pruning);
  EXPECT_EQ(ran + pruned, std::ssize(drafts)) << "nothing vanishes";
  EXPECT_GT(ran, 20);
}

TEST(Expansion, ScalingGrowsWhatItsNameSays) {
  const std::string axes = "axes: {launch.ranks: [1, 2, 4], layout: [\"pipeline=1\"]}";
  for (const auto& [name, batch, layers] :
       {std::tuple("strong", 8, 4), std::tuple("weak", 32, 4), std::tuple("model", 8, 16)}) {
    const auto drafts = expand(study("scaling: " + std::string(name) + ", " + axes), 2);
    EXPECT_EQ(drafts[0].config.value().train.global_batch, 8) << name;
    EXPECT_EQ(drafts[2].config.value().train.global_batch, batch) << name;
    EXPECT_EQ(drafts[2].config.value().model.layers, layers) << name;
  }
}

TEST(Expansion, WeakScalingHasToHoldTheRulesAtItsSizeOnly) {
  // 2 sequences per rank, and micro-batches of 4: only with ranks that share one, as in a pipeline, does it divide.
  const auto drafts =
      expand(study("scaling: weak, axes: {launch.ranks: [2], train.global_batch: [2], train.micro_batch: [4], layout: "
                   "[\"pipeline=2\", \"data=2\"]}"),
             2);
  EXPECT_EQ(drafts[0].config.value().train.global_batch, 4);
  EXPECT_EQ(drafts[1].pruning, Pruning::rule);
}

TEST(Expansion, AnotherPresetBringsItsOwnShape) {
  const Config config = parse_config(
      "run: {name: r}\nmodel: {preset: gpt2-124m, vocab: 512}\ndata: {tokenizer: random, sequence_length: 16}\n"
      "train: {steps: 3, global_batch: 8, micro_batch: 2}\nstudy: {axes: {model.preset: [gpt2-124m, gpt2-355m]}}\n");
  const auto drafts = expand(config, 1);
  ASSERT_EQ(drafts.size(), 2U);
  EXPECT_EQ(drafts[0].config.value().model.layers, 12);
  EXPECT_EQ(drafts[1].config.value().model.layers, 24);
  EXPECT_EQ(drafts[1].config.value().model.vocab, 512) << "what the file gives wins";
}

TEST(Expansion, SkipsWithTheExpressionAsTheReason) {
  const auto drafts = expand(study("axes: {launch.ranks: [1, 2, 4], layout: [\"pipeline=1\", \"tensor=2\"]}, "
                                   "skip: [\"ranks > 2\", \"tensor == 2 and ranks == 2\"]"),
                             2);
  ASSERT_EQ(drafts.size(), 6U);
  EXPECT_FALSE(drafts[0].pruning);
  EXPECT_EQ(drafts[3].pruning, Pruning::skip);
  EXPECT_EQ(drafts[3].because, "study.skip: tensor == 2 and ranks == 2");
  EXPECT_EQ(drafts[4].because, "study.skip: ranks > 2");
}

TEST(Expansion, WhatDoesNotChangeHowAPointRunsIsNotPartOfIt) {
  Config config = study("measure: {steps: 7}");
  config.run.name = "another", config.bounds.exposed = "5%";
  EXPECT_EQ(to_yaml(expand(config, 1)[0].config.value()), to_yaml(expand(study("scaling: strong"), 1)[0].config.value()));
}

TEST(Expansion, AtOtherSizesLayoutsKeepAllButData) {
  const auto drafts = expand_at(
      study("axes: {launch.ranks: [1, 2], layout: [auto, \"data=2 zero=1\", \"pipeline=2\", \"data=1 pipeline=2\"]}"), 64);
  std::vector<std::string> layouts;
  for (const Draft& draft : drafts) {
    EXPECT_EQ(draft.coordinates[0], std::pair(std::string("launch.ranks"), std::string("64")));
    layouts.push_back(draft.coordinates[1].second);
  }
  EXPECT_THAT(layouts, ElementsAre("auto", "zero=1", "pipeline=2"));
}

TEST(Expansion, RefusesAxesThatAreNone) {
  const auto refusal = [](const std::string& section) { return error_of<ConfigError>([&] { study(section); }); };
  EXPECT_THAT(refusal("axes: {train.micro_bath: [1]}"), HasSubstr("train.micro_batch"));
  EXPECT_THAT(refusal("axes: {study.measure.steps: [1]}"), HasSubstr("changes nothing"));
  EXPECT_THAT(refusal("axes: {run.seed: [1, 2]}"), HasSubstr("one for all points of a study"));
  EXPECT_THAT(refusal("axes: {train.micro_batch: []}"), HasSubstr("no values"));
  EXPECT_THAT(refusal("axes: {train.micro_batch: [1, 1]}"), HasSubstr("twice"));
  EXPECT_THAT(refusal("axes: {layout: [pipeline]}"), HasSubstr("must be auto, all"));
  EXPECT_THAT(error_of<ConfigError>([&] { expand(study("axes: {layout: [\"pipeline=2 pipeline=1\"]}"), 2); }),
              HasSubstr("gives `pipeline` twice"));
  EXPECT_THAT(refusal("axes: [1]"), HasSubstr("wrong type"));
  EXPECT_THAT(refusal("measure: {rounds: 3..2}"), HasSubstr("study.measure.rounds"));
  EXPECT_THAT(error_of<ConfigError>([&] { expand(study("skip: [\"tensor >\"]"), 1); }), HasSubstr("study.skip"));
}

TEST(Expansion, AxesReadBackAsTheyWereWritten) {
  const Config config = study(
      "axes: {layout: [\"pipeline=2 stages=[1, 3]\", auto], parallel.stages: [[1, 3], [2, 2]], "
      "data.tokenizer: [\"random\"]}, skip: [\"a: b == 1\"]");
  EXPECT_EQ(parse_config(to_yaml(config)).study.axes, config.study.axes);
}

}  // namespace
}  // namespace plait::study
