// Predictions from nominal figures against measured steps of plait; docs/planner.md shows the same table.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "plan/evaluation.h"
#include "topology/assumed_topology.h"

namespace plait::plan {
namespace {

struct MeasuredStep {
  std::string job, preset;
  int ranks = 1;
  std::int64_t sequence = 1024, global_batch = 1, micro_batch = 1;
  std::vector<std::string> keys;
  double ms = 0;
  const char* source;
};

// Steps on H200, in bf16 unless they say FP8. Where a source has several figures, the middle one.
const std::vector<MeasuredStep>& measured_steps() {
  static const std::vector<MeasuredStep> steps = {
      {"GPT-2 124M, 32 sequences", "gpt2-124m", 1, 1024, 32, 32, {}, 53.5, "performance.md, one GPU"},
      {"GPT-2 1558M, 16", "gpt2-1558m", 1, 1024, 16, 16, {}, 302.3, "performance.md, one GPU"},
      {"Qwen2.5-1.5B, 2 × 32", "qwen2.5-1.5b", 1, 1024, 64, 32, {}, 1071.2, "performance.md, one GPU"},
      {"2.78B, 8 × 1 of 2048", "gpt-2.8b", 1, 2048, 8, 1, {}, 529.1, "overlap.md, one rank"},
      {"2.78B, 4 × 4 of 2048", "gpt-2.8b", 1, 2048, 16, 4, {}, 958.8, "performance.md, layouts"},
      {"GPT-2 124M, recompute full",
       "gpt2-124m",
       1,
       1024,
       32,
       32,
       {"parallel.recompute=full"},
       64.2,
       "performance.md, options"},
      {"GPT-2 1558M, recompute full",
       "gpt2-1558m",
       1,
       1024,
       16,
       16,
       {"parallel.recompute=full"},
       372.8,
       "performance.md, options"},
      {"GPT-2 124M, 32 each",
       "gpt2-124m",
       4,
       1024,
       128,
       32,
       {"parallel.zero=1", "comm.reductions=links"},
       57.0,
       "performance.md, data parallel"},
      {"GPT-2 1558M, 16 each",
       "gpt2-1558m",
       4,
       1024,
       64,
       16,
       {"parallel.zero=1", "comm.reductions=links"},
       309.7,
       "performance.md, data parallel"},
      {"Qwen2.5-1.5B, 2 × 32 each",
       "qwen2.5-1.5b",
       4,
       1024,
       256,
       32,
       {"parallel.zero=1", "comm.reductions=links"},
       1094.6,
       "performance.md, data parallel"},
      {"2.78B, 2 × 4 each", "gpt-2.8b", 2, 2048, 16, 4, {"parallel.zero=1"}, 496.9, "performance.md, layouts"},
      {"2.78B, tensor 2, 8 × 1",
       "gpt-2.8b",
       2,
       2048,
       8,
       1,
       {"parallel.tensor=2", "comm.exchanges=links"},
       302.8,
       "overlap.md, measured"},
      {"2.78B, tensor 4, 8 × 1",
       "gpt-2.8b",
       4,
       2048,
       8,
       1,
       {"parallel.tensor=4", "comm.exchanges=links"},
       181.4,
       "overlap.md, measured"},
      {"2.78B, tensor 2 × pipeline 2, interleaved, 8 × 1",
       "gpt-2.8b",
       4,
       2048,
       8,
       1,
       {"parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.virtual_stages=2",
        "comm.exchanges=links"},
       158.6,
       "overlap.md, measured"},
      {"2.78B, tensor 2 × pipeline 2, zb-v, 8 × 1",
       "gpt-2.8b",
       4,
       2048,
       8,
       1,
       {"parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=zb-v", "comm.exchanges=links"},
       178.9,
       "overlap.md, measured"},
      {"2.78B, pipeline 2, zb-v, 16 × 2",
       "gpt-2.8b",
       2,
       2048,
       32,
       2,
       {"parallel.pipeline=2", "parallel.schedule=zb-v"},
       1017,
       "overlap.md, measured"},
      {"2.78B, pipeline 4, zb-v, 16 × 2",
       "gpt-2.8b",
       4,
       2048,
       32,
       2,
       {"parallel.pipeline=4", "parallel.schedule=zb-v"},
       515.0,
       "overlap.md, measured"},
      {"2.78B, pipeline 4, 1f1b, 16 × 2",
       "gpt-2.8b",
       4,
       2048,
       32,
       2,
       {"parallel.pipeline=4", "parallel.schedule=1f1b"},
       594.4,
       "overlap.md, measured"},
      {"GPT-2 124M, tensor 4, 128 × 4",
       "gpt2-124m",
       4,
       1024,
       512,
       4,
       {"parallel.tensor=4", "comm.exchanges=links"},
       613.2,
       "planner.md"},
      {"GPT-2 124M, data 4, 32 × 4 each", "gpt2-124m", 4, 1024, 512, 4, {}, 270.2, "planner.md"},
      {"GPT-2 124M, pipeline 4, 1f1b, 128 × 4",
       "gpt2-124m",
       4,
       1024,
       512,
       4,
       {"parallel.pipeline=4", "parallel.schedule=1f1b"},
       289.0,
       "planner.md"},
      {"GPT-2 1558M, data 4, 4 × 4 each", "gpt2-1558m", 4, 1024, 64, 4, {}, 348.8, "planner.md"},
      {"GPT-2 1558M, data 4, ZeRO-1, 4 × 4 each",
       "gpt2-1558m",
       4,
       1024,
       64,
       4,
       {"parallel.zero=1", "comm.reductions=links"},
       330.9,
       "planner.md"},
      {"GPT-2 1558M, data 4, ZeRO-2, 4 × 4 each",
       "gpt2-1558m",
       4,
       1024,
       64,
       4,
       {"parallel.zero=2", "comm.reductions=links"},
       351.2,
       "planner.md"},
      {"GPT-2 1558M, pipeline 4, zb-h1, 16 × 4",
       "gpt2-1558m",
       4,
       1024,
       64,
       4,
       {"parallel.pipeline=4", "parallel.schedule=zb-h1"},
       364.6,
       "planner.md"},
      {"GPT-2 1558M, pipeline 2 × data 2, 1f1b, 8 × 4",
       "gpt2-1558m",
       4,
       1024,
       64,
       4,
       {"parallel.pipeline=2", "parallel.schedule=1f1b"},
       376.8,
       "planner.md"},
      {"2.78B, tensor 2, 1 × 32",
       "gpt-2.8b",
       2,
       2048,
       32,
       32,
       {"parallel.tensor=2", "comm.exchanges=links"},
       995.8,
       "planner.md"},
      {"2.78B, tensor 4, 1 × 32",
       "gpt-2.8b",
       4,
       2048,
       32,
       32,
       {"parallel.tensor=4", "comm.exchanges=links"},
       594.7,
       "planner.md"},
      {"2.78B, tensor 2 × data 2, 1 × 16 each",
       "gpt-2.8b",
       4,
       2048,
       32,
       16,
       {"parallel.tensor=2", "comm.exchanges=links"},
       528.4,
       "planner.md"},
      {"FP8: GPT-2 124M, 32 sequences", "gpt2-124m", 1, 1024, 32, 32, {"precision.matmul=fp8"}, 48.4, "fp8.md, what it gives"},
      {"FP8: GPT-2 1558M, 16", "gpt2-1558m", 1, 1024, 16, 16, {"precision.matmul=fp8"}, 233.7, "fp8.md, what it gives"},
      {"FP8: Qwen2.5-1.5B, 2 × 32", "qwen2.5-1.5b", 1, 1024, 64, 32, {"precision.matmul=fp8"}, 799.5, "fp8.md, what it gives"},
      {"FP8: 2.78B, pipeline 2, zb-v, 16 × 2",
       "gpt-2.8b",
       2,
       2048,
       32,
       2,
       {"precision.matmul=fp8", "parallel.pipeline=2", "parallel.schedule=zb-v"},
       759.8,
       "fp8.md, what it gives"},
      {"FP8: 2.78B, pipeline 4, zb-v, 16 × 2",
       "gpt-2.8b",
       4,
       2048,
       32,
       2,
       {"precision.matmul=fp8", "parallel.pipeline=4", "parallel.schedule=zb-v"},
       382.9,
       "fp8.md, what it gives"},
      {"FP8: 2.78B, tensor 2, 8 × 1",
       "gpt-2.8b",
       2,
       2048,
       8,
       1,
       {"precision.matmul=fp8", "parallel.tensor=2", "comm.exchanges=links"},
       250.3,
       "fp8.md, what it gives"},
      {"FP8: 2.78B, tensor 2 × pipeline 2, interleaved, 8 × 1",
       "gpt-2.8b",
       4,
       2048,
       8,
       1,
       {"precision.matmul=fp8", "parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=interleaved",
        "parallel.virtual_stages=2", "comm.exchanges=links"},
       140.9,
       "overlap.md, measured"},
      {"FP8: 2.78B, tensor 4, 8 × 1",
       "gpt-2.8b",
       4,
       2048,
       8,
       1,
       {"precision.matmul=fp8", "parallel.tensor=4", "comm.exchanges=links"},
       193.4,
       "overlap.md, measured"},
  };
  return steps;
}

Evaluation predicted(const MeasuredStep& step, const std::string& device) {
  const Config config = parse_config("model: {preset: " + step.preset +
                                         "}\ndata: {tokenizer: random, sequence_length: " + std::to_string(step.sequence) +
                                         "}\ntrain: {steps: 1, global_batch: " + std::to_string(step.global_batch) +
                                         ", micro_batch: " + std::to_string(step.micro_batch) + "}\n",
                                     step.keys);
  topology::Fabric fabric(topology::assume_topology(DeviceKind::cuda, device, step.ranks).graph);
  const Site site{.machine = {.profile = topology::nominal_profile(device), .calibration = {}},
                  .fabric = &fabric,
                  .kind = DeviceKind::cuda};
  Placer placer(fabric);
  return evaluate_shortened(config, parallel::Decision{}, config.model.vocab, step.ranks, site, placer);
}

TEST(MeasuredSteps, ArePredictedWithinATenth) {
  for (const MeasuredStep& step : measured_steps()) {
    const double ms = 1e3 * predicted(step, "h200").step_seconds;
    std::cout << step.job << ": " << ms << " ms predicted, " << step.ms << " measured\n";
    EXPECT_NEAR(ms / step.ms, 1, 0.1) << step.job << " (" << step.source << ")";
  }
}

// Measured on one H100 of 700 W (planner.md).
TEST(MeasuredSteps, OfOneH100ArePredictedWithinATenth) {
  const std::vector<std::string> all_again = {"parallel.recompute=full"};
  const std::vector<MeasuredStep> steps = {
      {"GPT-2 124M, 32 sequences", "gpt2-124m", 1, 1024, 32, 32, {}, 55.71, "planner.md"},
      {"GPT-2 355M, 2 × 16", "gpt2-355m", 1, 1024, 32, 16, {}, 152.67, "planner.md"},
      {"GPT-2 1558M, 16", "gpt2-1558m", 1, 1024, 16, 16, {}, 310.47, "planner.md"},
      {"Qwen2.5-0.5B, 32", "qwen2.5-0.5b", 1, 1024, 32, 32, {}, 206.88, "planner.md"},
      {"Qwen2.5-1.5B, 4 × 16", "qwen2.5-1.5b", 1, 1024, 64, 16, {}, 1104.73, "planner.md"},
      {"Llama 3.2 1B, 4 × 4 of 2048", "llama3-1b", 1, 2048, 16, 4, {}, 460.84, "planner.md"},
      {"2.78B, 8 × 1 of 2048", "gpt-2.8b", 1, 2048, 8, 1, {}, 551.2, "planner.md"},
      {"GPT-2 124M, recompute full", "gpt2-124m", 1, 1024, 32, 32, all_again, 65.05, "planner.md"},
      {"GPT-2 1558M, recompute full", "gpt2-1558m", 1, 1024, 16, 16, all_again, 370.15, "planner.md"},
  };
  for (const MeasuredStep& step : steps) {
    const double ms = 1e3 * predicted(step, "h100").step_seconds;
    std::cout << step.job << ": " << ms << " ms predicted, " << step.ms << " measured\n";
    EXPECT_NEAR(ms / step.ms, 1, 0.1) << step.job << " (" << step.source << ")";
  }
}

// The compute of a rank of tensor 2 on H100 with nothing running beside it (overlap.md, measured).
TEST(MeasuredSteps, ComputeOnH100IsPredictedWithinATenth) {
  const MeasuredStep step{"2.78B, tensor 2, 8 × 1",
                          "gpt-2.8b",
                          2,
                          2048,
                          8,
                          1,
                          {"parallel.tensor=2", "comm.exchanges=links", "comm.overlap=false"},
                          284,
                          "overlap.md"};
  const double ms = predicted(step, "h100").ledger.compute_ms;
  std::cout << "computes for " << ms << " ms predicted, " << step.ms << " measured\n";
  EXPECT_NEAR(ms / step.ms, 1, 0.1);
}

// A prediction states an interval: 10 % on devices whose bf16 steps were measured, wider otherwise.
TEST(MeasuredSteps, OfOtherDevicesAPredictionIsAnInterval) {
  for (const std::string& name : topology::nominal_profile_names()) {
    const topology::DeviceProfile profile = topology::nominal_profile(name);
    const topology::StepInterval &half = step_interval(profile, DType::bf16), &single = step_interval(profile, DType::f32);
    const bool is_hopper = name == "H100" || name == "H200";
    EXPECT_EQ(half.best == 0.9 && half.worst == 1.1, is_hopper) << name;
    for (const topology::StepInterval* interval : {&half, &single}) {
      EXPECT_LT(interval->best, 1) << name;
      EXPECT_GT(interval->worst, 1) << name;
      EXPECT_FALSE(interval->basis.empty()) << name;
    }
    EXPECT_GT(single.worst, 1.1) << name << ": no step in fp32 was measured";
  }
  EXPECT_GT(step_interval(topology::nominal_profile("NVIDIA H100 PCIe"), DType::bf16).worst, 1.1) << "half the power";
  const Machine measured{.profile = topology::nominal_profile("a100"), .calibration = Calibration()};
  EXPECT_EQ(measured.interval({}), std::nullopt);
}

}  // namespace
}  // namespace plait::plan
