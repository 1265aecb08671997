// plait bench step: what it tells meanwhile; with --alone, one rank of any layout, whose peers do not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/step_benchmark.h"
#include "core/error.h"
#include "core/error_of.h"

namespace plait::bench {
namespace {

StepBenchmarkRequest request_of(std::int64_t pipeline, std::int64_t data, std::int64_t tensor, std::int64_t alone) {
  StepBenchmarkRequest request;
  Config& c = request.config;
  c.model.layers = 4, c.model.hidden = 64, c.model.heads = 8, c.model.vocab = 150, c.model.ffn = 128;
  c.data.tokenizer = "random", c.data.sequence_length = 16;
  c.train.global_batch = 4 * data, c.train.micro_batch = 1;
  c.parallel.size[Axis::pipeline] = pipeline, c.parallel.size[Axis::data] = data, c.parallel.size[Axis::tensor] = tensor;
  c.launch.device = "cpu";
  request.steps = 3, request.warmup = 1, request.alone = alone;
  return request;
}

nlohmann::ordered_json alone_result(const StepBenchmarkRequest& request) {
  nlohmann::ordered_json result;
  EXPECT_EQ(benchmark_step(request, [&](const nlohmann::ordered_json& json) { result = json; }), 0);
  return result;
}

TEST(BenchmarkAlone, EveryRankOfALayoutRunsWithoutItsPeers) {
  for (const auto& [pipeline, data, tensor] : {std::tuple{4, 1, 1}, {1, 1, 4}, {1, 2, 1}, {2, 2, 2}}) {
    for (const int rank : {0, pipeline * data * tensor - 1}) {
      StepBenchmarkRequest request = request_of(pipeline, data, tensor, rank);
      if (pipeline > 1) request.config.parallel.schedule = ScheduleKind::zb_v;
      const auto result = alone_result(request);
      EXPECT_EQ(result.at("ranks"), pipeline * data * tensor);
      EXPECT_EQ(result.at("alone"), rank);
      EXPECT_GT(result.at("step_ms").at("median"), 0);
      const auto& kinds = result.at("ledgers").at(0).at("kinds");
      EXPECT_EQ(kinds.at("tensor_exchanges").at("count") > 0, tensor > 1);
      EXPECT_EQ(kinds.at("activations").at("count") > 0, pipeline > 1);
    }
  }
}

// What stands in for others' rows is of ordinary size: a gather into memory that other tensors had before leaves nothing of
// them.
TEST(BenchmarkAlone, Fp8ProductsOfATensorGroupAreFinite) {
  for (const auto& [pipeline, tensor] : {std::pair{1, 4}, {1, 2}, {2, 2}}) {
    for (const int rank : {0, pipeline * tensor - 1}) {
      StepBenchmarkRequest request = request_of(pipeline, 1, tensor, rank);
      request.config.precision.matmul = MatmulType::fp8;
      EXPECT_GT(alone_result(request).at("step_ms").at("median"), 0);  // a step that is not finite is refused
    }
  }
}

TEST(BenchmarkStep, Rank0TellsHowFarItIs) {
  for (const int alone : {-1, 1}) {
    StepBenchmarkRequest request = request_of(1, 2, 1, alone);
    request.config.launch.ranks = 2;
    std::vector<std::pair<double, std::string>> told;
    request.progress = [&](double done, const std::string& now) { told.emplace_back(done, now); };
    EXPECT_EQ(benchmark_step(request, [](const auto&) {}), 0);
    EXPECT_THAT(told, testing::ElementsAre(testing::Pair(0, "setting up"), testing::Pair(0, ""),
                                           testing::Pair(0.25, "step 1 of 4"), testing::Pair(0.5, "step 2 of 4"),
                                           testing::Pair(0.75, "step 3 of 4"), testing::Pair(1, "step 4 of 4")));
  }
}

// Updates do nothing from such a step on, and take less time than those of training.
TEST(BenchmarkStep, AStepThatIsNotFiniteIsNoTime) {
  StepBenchmarkRequest request = request_of(1, 2, 1, -1);
  request.config.launch.ranks = 2;
  request.config.train.optimizer.lr = 1e30;
  request.config.train.clip = 0;
  EXPECT_THAT(error_of<Error>([&] { return benchmark_step(request, [](const auto&) {}); }),
              testing::HasSubstr("step 2 is not finite (loss "));
}

TEST(BenchmarkAlone, ARankTheLayoutHasNotAndALayoutThatIsNotGivenAreNamed) {
  const auto problem = [](const StepBenchmarkRequest& request) {
    return error_of<ConfigError>([&] { return benchmark_step(request, [](const auto&) {}); });
  };
  EXPECT_THAT(problem(request_of(1, 1, 2, 2)), testing::HasSubstr("--alone 2: the layout has ranks 0 to 1"));
  StepBenchmarkRequest open = request_of(2, 1, 1, 0);
  open.config.parallel.schedule = automatic;
  EXPECT_THAT(problem(open), testing::HasSubstr("parallel.schedule"));
}

}  // namespace
}  // namespace plait::bench
