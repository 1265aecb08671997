// How far a rank's thread may be ahead of its device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "parallel/rank_threads.h"

namespace plait::parallel {
namespace {

Config small(int layers) {
  Config config;
  config.model.layers = layers, config.model.hidden = 32, config.model.heads = 2, config.model.vocab = 64, config.model.ffn = 64;
  config.data.sequence_length = 8;
  config.precision.compute = "fp32";
  config.train.steps = 10, config.train.global_batch = 2, config.train.micro_batch = 1;
  return config;
}

std::uint64_t computations_before(const Program& program, int instruction) {
  std::uint64_t count = 0;
  for (int n = 0; n < instruction; ++n) count += program.stream_of(program.at(n)).role == StreamRole::compute ? 1 : 0;
  return count;
}

TEST(RunAhead, IsBoundedWhileTheDeviceStands) {
  run_ranks(small(24), 1, DeviceKind::host, [](Interpreter& interpreter, SyntheticBatches& batches) {
    interpreter.synchronize();
    std::atomic<bool> open = false, issued = false;
    interpreter.compute_stream().enqueue_host([&] { open.wait(false); });
    std::thread watcher([&] {
      const auto ahead = [&] { return computations_before(interpreter.plan().train, interpreter.progress().next); };
      // It comes that far, however busy the machine is, and no further in time enough for the whole step.
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!issued && ahead() < Interpreter::most_ahead && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_FALSE(issued) << "the whole step was enqueued";
      EXPECT_EQ(ahead(), Interpreter::most_ahead);
      open = true;
      open.notify_all();
    });
    interpreter.run_step(batches, {.update = 1, .lr = 1e-3f});
    issued = true;
    watcher.join();
    EXPECT_TRUE(std::isfinite(interpreter.synchronize_result().loss));
  });
}

TEST(RunAhead, EndsWithWhatFailedOnTheDevice) {
  const auto run = [] {
    run_ranks(small(24), 1, DeviceKind::host, [](Interpreter& interpreter, SyntheticBatches& batches) {
      interpreter.synchronize();
      interpreter.compute_stream().enqueue_host([] { throw std::runtime_error("a kernel's fault"); });
      interpreter.run_step(batches, {.update = 1, .lr = 1e-3f});
      ADD_FAILURE() << "the step was enqueued as if nothing were wrong";
    });
  };
  EXPECT_THAT(run, testing::ThrowsMessage<std::runtime_error>("a kernel's fault"));
}

// Enough kernels to fill a GPU's launch queue several times over, and a message after every few hundred of them: a thread that
// waited inside CUDA to launch more would keep the other rank from sending what its queue waits for.
TEST(GpuRunAhead, AFullQueueKeepsNoPeerFromSending) {
  std::string why;
  if (cuda_device_count(&why) < 2) GTEST_SKIP() << "needs 2 GPUs; " << why;
  Config config = small(48);
  config.parallel.pipeline = 2;
  config.train.global_batch = 32;
  run_ranks(config, 2, DeviceKind::cuda, [](Interpreter& interpreter, SyntheticBatches& batches) {
    for (std::int64_t step = 1; step <= 4; ++step) interpreter.run_step(batches, {.update = step, .lr = 1e-3f});
    while (interpreter.pending_results() > 0) EXPECT_TRUE(std::isfinite(interpreter.synchronize_result().loss));
  });
}

}  // namespace
}  // namespace plait::parallel
