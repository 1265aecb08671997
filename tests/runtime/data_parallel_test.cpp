// Data parallelism computes what one device would; overlap and recomputing change no bit.
#include <gtest/gtest.h>

#include <cmath>

#include "parallel/schedule_kinds.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

Config small(bool llama) {
  Config c;
  c.model.layers = 2, c.model.hidden = 32, c.model.heads = 4, c.model.vocab = 61, c.model.ffn = 64;
  if (llama) make_llama(c.model, 2);
  c.data.sequence_length = 16;
  c.train.steps = 5, c.train.global_batch = 8, c.train.micro_batch = 2, c.train.clip = 0.5;
  c.comm.bucket_mb = 0.01;
  return c;
}

struct Case {
  bool llama;
  int ranks;
  std::int64_t zero;
};

class DataParallel : public testing::TestWithParam<Case> {};

TEST_P(DataParallel, GivesTheSerialRunsLossesAndParameters) {
  Config config = small(GetParam().llama);
  const JobResult serial = run_job(config, 1, DeviceKind::host);
  config.parallel.zero = GetParam().zero;
  const JobResult parallel = run_job(config, GetParam().ranks, DeviceKind::host);
  ASSERT_EQ(parallel.losses.size(), 5u);
  EXPECT_LT(serial.losses.back(), serial.losses.front());
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(parallel.losses[i], serial.losses[i], 1e-5 * std::abs(serial.losses[i]));
    EXPECT_NEAR(parallel.grad_norms[i], serial.grad_norms[i], 1e-4 * serial.grad_norms[i]);
  }
  EXPECT_LT(largest_difference(parallel, serial), 1e-5);
}

TEST_P(DataParallel, OverlapChangesNoBit) {
  Config config = small(GetParam().llama);
  config.parallel.zero = GetParam().zero;
  const JobResult overlapped = run_job(config, GetParam().ranks, DeviceKind::host);
  config.comm.overlap = false;
  expect_same_bits(overlapped, run_job(config, GetParam().ranks, DeviceKind::host));
}

INSTANTIATE_TEST_SUITE_P(Layouts, DataParallel,
                         testing::Values(Case{false, 1, 0}, Case{false, 1, 1}, Case{false, 2, 0}, Case{false, 2, 1},
                                         Case{false, 4, 0}, Case{false, 4, 1}, Case{true, 2, 0}, Case{true, 4, 1}),
                         [](const auto& instance) {
                           return std::string(instance.param.llama ? "llama" : "gpt") + "_" +
                                  std::to_string(instance.param.ranks) + "_ranks_zero" + std::to_string(instance.param.zero);
                         });

TEST(DataParallelProgramRun, RecomputeAndBucketSizeChangeNoBit) {
  Config config = small(true);
  const JobResult kept = run_job(config, 2, DeviceKind::host);
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    config.parallel.recompute = recompute;
    expect_same_bits(kept, run_job(config, 2, DeviceKind::host));
  }
  config.comm.bucket_mb = 25;
  const JobResult one_bucket = run_job(config, 2, DeviceKind::host);
  EXPECT_LT(largest_difference(kept, one_bucket), 1e-5);
}

TEST(DataParallelProgramRun, AStepAllocatesNothing) {
  run_ranks(small(false), 2, DeviceKind::host, [](Interpreter& interpreter, SyntheticBatches& batches) {
    for (std::int64_t step = 1; step <= 3; ++step) interpreter.run_step(batches, {.update = step, .lr = 1e-2f});
    interpreter.synchronize();
    // Everything is carved from the arena: one device allocation, one of pinned memory, and the progress board.
    EXPECT_EQ(interpreter.memory().allocations(), 3);
    EXPECT_EQ(interpreter.memory().peak_bytes(), interpreter.plan().memory.total_bytes());
  });
}

TEST(PipelineProgramRun, WhatLinksAndInterpreterAllocateIsWhatWasPlanned) {
  for (const ScheduleKind schedule : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1}) {
    Config config = small(false);
    config.model.layers = 4;
    config.parallel.size[Axis::data] = 1, config.parallel.size[Axis::pipeline] = 2, config.parallel.schedule = schedule;
    config.parallel.virtual_stages = parallel::some_virtual_stages(schedule);
    run_ranks(config, 2, DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches&) {
      EXPECT_GT(interpreter.linked_bytes(), 0u) << "messages between threads arrive in place";
      EXPECT_EQ(interpreter.memory().peak_bytes() + interpreter.linked_bytes(), interpreter.plan().memory.total_bytes())
          << to_string(schedule);
    });
  }
}

TEST(TensorProgramRun, WhatExchangesByLinksAllocateIsWhatWasPlanned) {
  Config config = small(true);
  config.parallel.size[Axis::data] = 1, config.parallel.size[Axis::tensor] = 2;
  for (const bool sequence_parallel : {true, false}) {
    config.parallel.sequence_parallel = sequence_parallel;
    for (const CollectiveWay way : {CollectiveWay::links, CollectiveWay::library}) {
      config.comm.exchanges = way;
      run_ranks(config, 2, DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches&) {
        EXPECT_EQ(interpreter.linked_bytes() > 0, way == CollectiveWay::links);
        EXPECT_EQ(interpreter.memory().peak_bytes() + interpreter.linked_bytes(), interpreter.plan().memory.total_bytes());
      });
    }
  }
}

// A slice is 9 of 17 rows, no multiple of the places' alignment.
TEST(TensorProgramRun, WhatExchangesOfOddRowsAllocateIsWhatWasPlanned) {
  Config config = small(false);
  config.model.hidden = 16;
  config.data.sequence_length = 17, config.train.micro_batch = 1;
  config.parallel.size[Axis::data] = 1, config.parallel.size[Axis::tensor] = 2, config.parallel.sequence_parallel = false;
  config.comm.exchanges = CollectiveWay::links;
  run_ranks(config, 2, DeviceKind::host, [](Interpreter& interpreter, SyntheticBatches&) {
    EXPECT_NE(interpreter.plan().slice_bytes(parallel::exchange_group) % parallel::MemoryPlan::alignment, 0u);
    EXPECT_EQ(interpreter.memory().peak_bytes() + interpreter.linked_bytes(), interpreter.plan().memory.total_bytes());
  });
}

TEST(DataParallelProgramRun, WhatReductionsByLinksAllocateIsWhatWasPlanned) {
  Config config = small(true);
  config.comm.reductions = CollectiveWay::links;
  for (const int data : {2, 4}) {
    config.parallel.size[Axis::data] = data;
    for (const int zero : {0, 1, 2}) {
      config.parallel.zero = zero;
      for (const double bucket_mb : {0.001, 25.0}) {
        config.comm.bucket_mb = bucket_mb;
        run_ranks(config, data, DeviceKind::host, [](Interpreter& interpreter, SyntheticBatches&) {
          EXPECT_GT(interpreter.linked_bytes(), 0u);
          EXPECT_EQ(interpreter.memory().peak_bytes() + interpreter.linked_bytes(), interpreter.plan().memory.total_bytes());
        });
      }
    }
  }
}

TEST(DataParallelProgramRun, ANonFiniteWeightHaltsTheRunAndIsFound) {
  run_ranks(small(false), 2, DeviceKind::host, [](Interpreter& interpreter, SyntheticBatches& batches) {
    interpreter.run_step(batches, {.update = 1, .lr = 1e-2f});
    EXPECT_FALSE(interpreter.synchronize_result().halted);
    // Rank 1 alone gets a bad gain in segment 2.
    const parallel::RankPlan& plan = interpreter.plan();
    std::size_t bad = 0;
    while (plan.parameters[bad].name != "blocks.1.attention_norm.weight") ++bad;
    interpreter.synchronize();
    if (interpreter.plan().rank == 1) interpreter.master().as<float>()[plan.flat.parameter(bad).first + 3] = INFINITY;
    interpreter.run_step(batches, {.update = 2, .lr = 1e-2f});
    EXPECT_TRUE(interpreter.synchronize_result().halted);
    interpreter.run_step(batches, {.update = 3, .lr = 1e-2f});
    EXPECT_TRUE(interpreter.synchronize_result().halted) << "stays halted";
    SyntheticBatches again(plan, 1234);
    const auto found = synchronize_find_non_finite(interpreter, again);
    ASSERT_EQ(found.has_value(), interpreter.plan().rank == 1);
    EXPECT_EQ(found.value_or(NonFinite{}).where, interpreter.plan().rank == 1 ? "weights: blocks.1.attention_norm.weight" : "");
  });
}

}  // namespace
}  // namespace plait::runtime
