// What is done before the first step, so that a step does nothing for the first time.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

TEST(WarmUp, LeavesTheStateAsItIs) {
  for (const int zero : {0, 1, 2}) {
    Config config = small_job(4);
    config.precision.compute = "fp32";
    config.parallel.pipeline = 2, config.parallel.data = 2, config.parallel.zero = zero;
    run_ranks(config, 4, DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches& batches) {
      const auto read_state = [&] {
        interpreter.synchronize();
        return std::vector{
            interpreter.synchronize_read(interpreter.weights()), interpreter.synchronize_read(interpreter.master()),
            interpreter.synchronize_read(interpreter.exp_avg()), interpreter.synchronize_read(interpreter.exp_avg_sq())};
      };
      interpreter.run_step(batches, {.update = 1, .lr = 1e-2f});
      const StepResult first = interpreter.synchronize_result();
      const auto before = read_state();
      interpreter.synchronize_warm_up();
      EXPECT_EQ(read_state(), before) << "rank " << interpreter.plan().rank << ", zero " << zero;
      interpreter.run_step(batches, {.update = 2, .lr = 1e-2f});
      const StepResult second = interpreter.synchronize_result();
      EXPECT_FALSE(second.halted);
      EXPECT_LT(second.loss, first.loss);
      EXPECT_NE(read_state(), before) << "no step moves the weights any more";
    });
  }
}

// The last stage's thread comes to the end of its first step while its GPU waits for the first message of it. A kernel that was
// loaded there would keep that message from being sent, for ever.
class GpuWarmUp : public testing::TestWithParam<int> {};

TEST_P(GpuWarmUp, NothingIsLoadedBehindAMessage) {
  const int data = GetParam(), ranks = 2 * data;
  std::string why;
  if (cuda_device_count(&why) < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs; " << why;
  Config config = small_job(4);
  config.parallel.pipeline = 2, config.parallel.data = data, config.parallel.zero = data;
  config.train.global_batch = 2 * data;
  config.precision.compute = "bf16";
  run_ranks(config, ranks, DeviceKind::cuda, [](Interpreter& interpreter, SyntheticBatches& batches) {
    const bool sends_first = interpreter.plan().coordinates().pipeline == 0;
    const auto come_late = [&] {
      if (sends_first) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    };
    come_late();
    interpreter.run_step(batches, {.update = 1, .lr = 1e-3f});
    EXPECT_TRUE(std::isfinite(interpreter.synchronize_result().loss));
    interpreter.synchronize();
    come_late();
    EXPECT_TRUE(std::isfinite(interpreter.synchronize_evaluation(batches, 2)));
  });
}
INSTANTIATE_TEST_SUITE_P(DataRanks, GpuWarmUp, testing::Values(1, 2));

// Launches enough kernels to fill a GPU's launch queue several times over, and a message after every few hundred of them: a
// thread that waits for room in the queue must not keep the other rank from sending.
TEST(GpuLaunchQueue, AFullOneKeepsNoPeerFromSending) {
  std::string why;
  if (cuda_device_count(&why) < 2) GTEST_SKIP() << "needs 2 GPUs; " << why;
  Config config = small_job(4);
  config.model.layers = 48;
  config.parallel.pipeline = 2;
  config.train.global_batch = 32;
  run_ranks(config, 2, DeviceKind::cuda, [](Interpreter& interpreter, SyntheticBatches& batches) {
    for (std::int64_t step = 1; step <= 4; ++step) interpreter.run_step(batches, {.update = step, .lr = 1e-3f});
    while (interpreter.pending_results() > 0) EXPECT_TRUE(std::isfinite(interpreter.synchronize_result().loss));
  });
}

}  // namespace
}  // namespace plait::runtime
