// Data parallelism on GPUs: the same equalities as on CPUs, and calls that a step may not make on its host.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/quiet_steps.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

Config small(const char* compute, bool llama) {
  Config c;
  c.model.layers = 2, c.model.hidden = 128, c.model.heads = 2, c.model.vocab = 301, c.model.ffn = 256;
  if (llama) make_llama(c.model, 1);
  c.data.sequence_length = 64;
  c.train.steps = 4, c.train.global_batch = 16, c.train.micro_batch = 2, c.train.clip = 0.5;
  c.comm.bucket_mb = 0.05;
  c.precision.compute = compute;
  c.precision.deterministic = true;
  return c;
}

struct GpuCase {
  bool llama;
  int ranks;
  std::int64_t zero;
};

class GpuDataParallel : public testing::TestWithParam<GpuCase> {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda_device_count(&why) == 0) GTEST_SKIP() << why;
  }
};

TEST_P(GpuDataParallel, InFp32GivesTheSerialRun) {
  Config config = small("fp32", GetParam().llama);
  const JobResult cpu = run_job(config, 1, DeviceKind::host);
  const JobResult serial = run_job(config, 1, DeviceKind::cuda);
  config.parallel.zero = GetParam().zero;
  const JobResult parallel = run_job(config, GetParam().ranks, DeviceKind::cuda);
  for (std::size_t i = 0; i < serial.losses.size(); ++i) {
    EXPECT_NEAR(parallel.losses[i], serial.losses[i], 1e-5 * std::abs(serial.losses[i]));
    EXPECT_NEAR(parallel.losses[i], cpu.losses[i], 1e-5 * std::abs(cpu.losses[i]));
    EXPECT_NEAR(parallel.grad_norms[i], cpu.grad_norms[i], 1e-4 * cpu.grad_norms[i]);
  }
  EXPECT_LT(largest_difference(parallel, serial), 1e-5);
  // Another device rounds every product differently, and Adam turns the relative error of a gradient near zero into as
  // large a share of the learning rate: 4 updates of 1e-3 leave room for 4e-3, a hundredth of which is granted.
  EXPECT_LT(largest_difference(parallel, cpu), 4e-5);
}

TEST_P(GpuDataParallel, OverlapChangesNoBit) {
  for (const char* compute : {"fp32", "bf16"}) {
    Config config = small(compute, GetParam().llama);
    config.parallel.zero = GetParam().zero;
    const JobResult overlapped = run_job(config, GetParam().ranks, DeviceKind::cuda);
    config.comm.overlap = false;
    const JobResult serialised = run_job(config, GetParam().ranks, DeviceKind::cuda);
    EXPECT_EQ(overlapped.losses, serialised.losses) << compute;
    EXPECT_TRUE(overlapped.parameters == serialised.parameters) << compute;
  }
}

TEST_P(GpuDataParallel, InBf16FollowsTheFp32Run) {
  Config config = small("bf16", GetParam().llama);
  config.parallel.zero = GetParam().zero;
  const JobResult low = run_job(config, GetParam().ranks, DeviceKind::cuda);
  config = small("fp32", GetParam().llama);
  const JobResult serial = run_job(config, 1, DeviceKind::host);
  // bf16 keeps 8 bits: activations and logits carry relative errors of about 2^-9 each, the mean over 1024 tokens less.
  for (std::size_t i = 0; i < serial.losses.size(); ++i) {
    EXPECT_NEAR(low.losses[i], serial.losses[i], 4e-3 * serial.losses[i]);
    EXPECT_NEAR(low.grad_norms[i], serial.grad_norms[i], 3e-2 * serial.grad_norms[i]);
  }
}

TEST_P(GpuDataParallel, RecomputeChangesNoBitThatWasNotFused) {
  Config config = small("bf16", GetParam().llama);
  const JobResult kept = run_job(config, GetParam().ranks, DeviceKind::cuda);
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    config.parallel.recompute = recompute;
    const JobResult recomputed = run_job(config, GetParam().ranks, DeviceKind::cuda);
    if (!GetParam().llama && recompute == Recompute::selective) {
      // The fused epilogue applies GELU to the product before it is rounded to bf16, recomputing starts from the rounded one.
      for (std::size_t i = 0; i < kept.losses.size(); ++i)
        EXPECT_NEAR(kept.losses[i], recomputed.losses[i], 1e-3 * kept.losses[i]);
      continue;
    }
    EXPECT_EQ(kept.losses, recomputed.losses) << to_string(recompute);
    EXPECT_TRUE(kept.parameters == recomputed.parameters) << to_string(recompute);
  }
}

TEST_P(GpuDataParallel, AStepNeitherSynchronizesTheHostNorAllocates) {
  Config config = small("bf16", GetParam().llama);
  config.parallel.zero = GetParam().zero;
  config.precision.deterministic = false;
  expect_quiet_steps(config, GetParam().ranks);
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuDataParallel,
                         testing::Values(GpuCase{false, 1, 0}, GpuCase{true, 1, 1}, GpuCase{false, 2, 0}, GpuCase{true, 2, 1},
                                         GpuCase{true, 4, 0}, GpuCase{false, 4, 1}),
                         [](const auto& instance) {
                           return std::string(instance.param.llama ? "llama" : "gpt") + "_" +
                                  std::to_string(instance.param.ranks) + "_ranks_zero" + std::to_string(instance.param.zero);
                         });

}  // namespace
}  // namespace plait::runtime
