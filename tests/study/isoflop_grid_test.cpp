#include "study/isoflop_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "core/error_of.h"
#include "model/parameters.h"

namespace plait::study {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr const char* gpt = R"(
model: {layers: 4, hidden: 256, heads: 4}
data: {train: [text/**], tokenizer: bytes, sequence_length: 128}
train: {steps: 10, global_batch: 16, micro_batch: 4}
launch: {device: cpu}
)";
constexpr const char* llama = R"(
model: {layers: 8, hidden: 512, heads: 8, kv_heads: 2, ffn: 1408, vocab: 4096, norm: rms_norm, mlp: swiglu, position: rope,
        bias: false, qkv_bias: false, tie_embeddings: false}
data: {train: [text/**], tokenizer: bytes, sequence_length: 128}
train: {steps: 10, global_batch: 16, micro_batch: 4}
launch: {device: cpu}
)";

// Elements of all matrices, but of an embedding that is only looked up.
std::int64_t multiplied_parameters(const Config& config, std::int64_t vocab) {
  const model::ModelShape shape = model::resolve_shape(config.model, vocab, config.data.sequence_length);
  std::int64_t sum = 0;
  for (const model::Parameter& p : model::parameters(shape)) {
    const bool looked_up = p.segment == 0 && !(config.model.tie_embeddings && p.stored_shape[0] == shape.vocab);
    if (p.stored_shape.rank() == 2 && !looked_up) sum += p.stored_shape.elements();
  }
  return sum;
}

class IsoflopGrid : public testing::TestWithParam<const char*> {};

TEST_P(IsoflopGrid, PointsAreWhatWasAskedFor) {
  const Config base = parse_config(GetParam());
  const IsoflopRequest request{.budgets = {3e14, 1e15, 3e15}, .sizes = {2e6, 6e6, 2e7, 6e7}};
  const auto points = isoflop_grid(base, 256, request);
  ASSERT_EQ(points.size(), 12u);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const IsoflopPoint& point = points[i];
    EXPECT_EQ(point.size, request.sizes[i / 3]);
    EXPECT_EQ(point.budget, request.budgets[i % 3]);
    ASSERT_EQ(point.problem, "");
    const Config config = parse_config(GetParam(), point.overrides);
    EXPECT_EQ(config.model.head_dim, 64) << "constant";
    EXPECT_EQ(config.model.hidden, config.model.heads * 64);
    EXPECT_EQ(!base.model.kv_heads.is_auto() ? config.model.heads / config.model.kv_heads : 4, 4);
    EXPECT_NEAR(static_cast<double>(config.model.ffn) / static_cast<double>(config.model.hidden),
                !base.model.ffn.is_auto() ? 2.75 : 4, 0.1);
    EXPECT_EQ(point.parameters, multiplied_parameters(config, 256));
    EXPECT_NEAR(std::log(static_cast<double>(point.parameters) / point.size), 0, std::log(1 + size_tolerance));
    const double aspect = static_cast<double>(config.model.hidden) / static_cast<double>(config.model.layers);
    EXPECT_TRUE(aspect > 64 / 2.5 && aspect < 64 * 2.5) << config.model.hidden << " / " << config.model.layers;
    EXPECT_EQ(point.tokens, point.steps * 16 * 128);
    EXPECT_EQ(config.train.steps, point.steps);
    EXPECT_NEAR(point.flops, 6.0 * static_cast<double>(point.parameters) * static_cast<double>(point.tokens), 1);
    EXPECT_NEAR(point.flops / point.budget, 1, 0.02);
    EXPECT_EQ(config.train.global_batch * config.train.eval_batches, base.train.global_batch * base.train.eval_batches)
        << "the same evaluated tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, IsoflopGrid, testing::Values(gpt, llama),
                         [](const auto& instance) { return instance.param == gpt ? "gpt" : "llama"; });

TEST(IsoflopGridRules, HeadsDivideOverTensorParallelRanks) {
  const Config base = parse_config(llama, {"parallel.tensor=2", "launch.ranks=2"});
  for (const IsoflopPoint& point : isoflop_grid(base, 256, {.budgets = {1e16}, .sizes = {1e7, 1e8}})) {
    EXPECT_EQ(point.problem, "");
    const Config config = parse_config(llama, point.overrides);
    EXPECT_EQ(config.model.kv_heads % 2, 0);
    EXPECT_EQ(config.model.ffn % 2, 0);
  }
}

TEST(IsoflopGridRules, APointThatCannotBeSaysWhyAndWhatWouldHelp) {
  const auto problem = [&](const Config& base, double budget, double size) {
    return isoflop_grid(base, 256, {.budgets = {budget}, .sizes = {size}}).front().problem;
  };
  const Config base = parse_config(gpt);
  EXPECT_THAT(problem(base, 1e11, 6e7), HasSubstr("are 0 steps"));
  EXPECT_THAT(problem(base, 1e16, 1000), HasSubstr("no shape with heads of width 64 comes near N=1e+03"));
  const Config warm = parse_config(gpt, {"train.optimizer.warmup=5000", "train.steps=5000"});
  EXPECT_THAT(problem(warm, 1e14, 6e6), HasSubstr("train.optimizer.warmup=5000: must be at most train.steps"));

  // About five steps: most such budgets are missed, and what is said to help helps.
  int missed = 0;
  for (double budget = 3e11; budget < 6e11; budget *= 1.07) {
    const std::string coarse = problem(base, budget, 6e6);
    const auto at = coarse.find("global_batch to ");
    if (at == std::string::npos) continue;
    ++missed;
    const std::string batch = coarse.substr(at + 16, coarse.find(' ', at + 16) - at - 16);
    EXPECT_EQ(problem(parse_config(gpt, {"train.micro_batch=1", "train.global_batch=" + batch}), budget, 6e6), "") << coarse;
  }
  EXPECT_GT(missed, 4);
}

TEST(IsoflopGridRules, ABudgetThatNoBatchMeetsSaysTheLeast) {
  const auto problem = [](const std::string& batch, double budget) {
    const Config base = parse_config(gpt, {"train.micro_batch=1", "train.global_batch=" + batch});
    return isoflop_grid(base, 256, {.budgets = {budget}, .sizes = {6e6}}).front().problem;
  };
  // What is said of a number behind `words`.
  const auto number_behind = [](const std::string& text, const std::string& words) {
    const auto at = text.find(words);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? 0 : std::stod(text.substr(at + words.size()));
  };
  for (const char* batch : {"1", "16"}) {
    const std::string few = problem(batch, 1e3);
    EXPECT_THAT(few, HasSubstr("1e+03 FLOPs are too few for one step at N="));
    const double least = number_behind(few, "with train.global_batch=1, is ");
    EXPECT_EQ(problem("1", least), "");
    const std::string uneven = problem("1", 1.4 * least);
    EXPECT_THAT(uneven, HasSubstr("are 1 step at N="));
    EXPECT_EQ(problem("1", 3 * number_behind(uneven, "take a multiple of ")), "");
    EXPECT_EQ(problem("1", 1.02 * number_behind(uneven, " FLOPs, or ")), "");
  }
}

TEST(IsoflopGridRules, ARequestThatIsNoneIsRefused) {
  const Config base = parse_config(gpt);
  const auto error = [&](const IsoflopRequest& request) {
    return error_of<ConfigError>([&] { return isoflop_grid(base, 256, request); });
  };
  EXPECT_THAT(error({.budgets = {}, .sizes = {1e6}}), HasSubstr("study.axes flops"));
  EXPECT_THAT(error({.budgets = {1e15}, .sizes = {-1}}), HasSubstr("study.axes parameters=-1"));
  EXPECT_THAT(error({.budgets = {1e15}, .sizes = {1e300}}), HasSubstr("at most"));
  EXPECT_THAT(error({.budgets = {1e15, NAN}, .sizes = {1e6}}), HasSubstr("study.axes flops=nan"));
  EXPECT_THAT(error({.budgets = {1e15, 1e15}, .sizes = {1e6}}), HasSubstr("given twice"));
  EXPECT_THAT(error({.budgets = {1e15}, .sizes = {6e6, 6.01e6}}), HasSubstr("sizes further apart"));
}

TEST(WsdForks, LeaveTheTrunkWhereTheirDecayBegins) {
  const Config base = parse_config(gpt, {"train.optimizer={warmup: 10, decay_fraction: 0.2}"});
  const auto forks = wsd_forks(base, {400, 100, 200});
  ASSERT_EQ(forks.size(), 3u);
  EXPECT_EQ(forks[0].steps, 100);
  EXPECT_EQ(forks[0].fork_step, 80);
  EXPECT_EQ(forks[2].fork_step, 320);
  EXPECT_EQ(forks[2].decay_steps, 80);
  EXPECT_THAT(forks[1].trunk_overrides, Contains("train.steps=160"));
  const Config fork = parse_config(gpt, forks[1].fork_overrides);
  EXPECT_EQ(fork.train.steps, 200);
  EXPECT_EQ(fork.train.optimizer.schedule, Decay::wsd);
  EXPECT_EQ(fork.train.optimizer.decay_steps, 40);

  const Config fixed = parse_config(gpt, {"train.optimizer={warmup: 10, decay_steps: 30}", "train.steps=100"});
  EXPECT_EQ(wsd_forks(fixed, {100})[0].fork_step, 70);
  std::vector<std::string> short_trunk{"train.optimizer={warmup: 10, decay_steps: 30}"};
  const auto overrides = wsd_forks(fixed, {45})[0].trunk_overrides;
  short_trunk.insert(short_trunk.end(), overrides.begin(), overrides.end());
  EXPECT_EQ(parse_config(gpt, short_trunk).train.steps, 15) << "shorter than the decay that it does not have";
  const auto error = [](const Config& config, std::vector<std::int64_t> lengths) {
    return error_of<ConfigError>([&] { return wsd_forks(config, std::move(lengths)); });
  };
  EXPECT_THAT(error(fixed, {8}), HasSubstr("within the warm-up of 10 steps"));
  EXPECT_THAT(error(fixed, {100, 100}), HasSubstr("where 100 steps do already"));
  EXPECT_THAT(error(parse_config(gpt, {"train.optimizer.decay_fraction=0"}), {100}), HasSubstr("has no decay"));
}

TEST(WsdForks, LengthsThatCannotForkAreLeftOut) {
  // The decay of 12, 14 and 20 steps begins where the warm-up ends.
  const Config half = parse_config(gpt, {"train.optimizer={warmup: 10, decay_fraction: 0.5}", "train.steps=100"});
  EXPECT_THAT(lengths_that_fork(half, {100, 14, 12, 20}), testing::ElementsAre(12, 100));
  EXPECT_EQ(wsd_forks(half, {12, 100}).size(), 2u);
  EXPECT_THAT(lengths_that_fork(half, {400, 100, 100, 200}), testing::ElementsAre(100, 200, 400));
  // Without a warm-up a fork still needs a step to leave from.
  const Config all = parse_config(gpt, {"train.optimizer={warmup: 0, decay_fraction: 1}", "train.steps=100"});
  EXPECT_THAT(lengths_that_fork(all, {10, 100}), testing::IsEmpty());
  EXPECT_THAT(lengths_that_fork(parse_config(gpt, {"train.optimizer.decay_fraction=0"}), {50, 100}), testing::IsEmpty());
}

}  // namespace
}  // namespace plait::study
