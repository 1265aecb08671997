// Checks that a step makes no call that its host would wait for.
#pragma once

#include <algorithm>
#include <barrier>
#include <optional>

#include "cuda_calls/cuda_calls.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {

// Runs steps on GPUs and counts the driver calls of four of them: no synchronization, no allocation, no free. With graphs, they
// are counted once each slot has one.
inline void expect_quiet_steps(const Config& config, int ranks) {
  // Rank threads share the process that is watched: all of them stop around the counted steps.
  std::barrier<> everyone(ranks);
  std::optional<CudaCallCounter> counter;
  run_ranks(config, ranks, DeviceKind::cuda, [&](Interpreter& interpreter, SyntheticBatches&) {
    // Pinned batches that are never rewritten: the data path of the test must not be what synchronizes.
    struct FixedBatch final : BatchSource {
      explicit FixedBatch(std::int64_t rows, Device device) : memory(device) {
        const auto bytes = static_cast<std::size_t>(rows) * sizeof(std::int32_t);
        tokens = memory.allocate(bytes, MemoryKind::pinned_host);
        starts = memory.allocate(bytes, MemoryKind::pinned_host);
        std::fill_n(values(tokens), rows, 7);
        std::fill_n(values(starts), rows, 0);  // one document per sequence
      }
      static std::int32_t* values(const Buffer& buffer) { return static_cast<std::int32_t*>(buffer.data()); }
      HostBatch next() override { return {values(tokens), values(tokens), values(starts)}; }
      void release(StreamRef) override {}
      DeviceMemory memory;
      Buffer tokens, starts;
    } batch(interpreter.plan().sizes.micro_batch.rows(), interpreter.memory().device());
    std::int64_t step = 0;
    const bool graphs = config.train.graph == GraphUse::on;
    for (; step < (graphs ? 20 : 3); ++step) {  // tuning, lazy loading, capture
      if (interpreter.pending_results() == Interpreter::results_in_flight) static_cast<void>(interpreter.synchronize_result());
      interpreter.run_step(batch, {.update = step + 1, .lr = 1e-3f});
    }
    interpreter.synchronize();
    interpreter.context().set_tuning(false);
    while (interpreter.pending_results() > 0) static_cast<void>(interpreter.synchronize_result());
    everyone.arrive_and_wait();
    if (interpreter.plan().rank == 0) counter.emplace();
    everyone.arrive_and_wait();
    for (int counted = 0; counted < 4; ++counted, ++step) interpreter.run_step(batch, {.update = step + 1, .lr = 1e-3f});
    everyone.arrive_and_wait();
    if (interpreter.plan().rank == 0) {
      const CudaCallCounts counts = counter->stop();
      if (graphs)
        EXPECT_EQ(counts.launches, 4 * ranks);
      else
        EXPECT_GT(counts.launches, 100) << "the counter saw nothing";
      EXPECT_EQ(counts.synchronizations, 0) << counts.report();
      EXPECT_EQ(counts.allocations, 0) << counts.report();
      EXPECT_EQ(counts.frees, 0) << counts.report();
    }
    everyone.arrive_and_wait();
    EXPECT_EQ(interpreter.memory().allocations(), 3);
  });
}

}  // namespace plait::runtime
