// The warm-up before the first step, after which a step does nothing for the first time.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "comm/rank_threads.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

TEST(WarmUp, LeavesTheStateAsItIs) {
  for (const auto& [zero, reductions] : {std::pair{0, CollectiveWay::library},
                                         {1, CollectiveWay::library},
                                         {2, CollectiveWay::library},
                                         {0, CollectiveWay::links},
                                         {1, CollectiveWay::links},
                                         {2, CollectiveWay::links}}) {
    Config config = small_job(4);
    config.precision.compute = "fp32";
    config.parallel.size[Axis::pipeline] = 2, config.parallel.size[Axis::data] = 2, config.parallel.zero = zero,
    config.comm.reductions = reductions;
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
      EXPECT_EQ(read_state(), before) << "rank " << interpreter.plan().rank << ", zero " << zero << ", "
                                      << to_string(reductions);
      interpreter.run_step(batches, {.update = 2, .lr = 1e-2f});
      const StepResult second = interpreter.synchronize_result();
      EXPECT_FALSE(second.halted);
      EXPECT_LT(second.loss, first.loss);
      EXPECT_NE(read_state(), before) << "no step moves the weights any more";
    });
  }
}

// `early` returns the rank that waits for `late`, if any. `late` sends nothing before the thread of that rank has come to the
// end of its step, while its device waits for the first message from `late`. If a kernel were loaded there, the message could
// never be sent.
void expect_that_no_launch_waits_for_a_message(DeviceKind kind, Config config, int ranks,
                                               const std::function<std::optional<int>(const parallel::RankPlan& late)>& early) {
  config.precision.compute = kind == DeviceKind::cuda ? "bf16" : "fp32";
  std::mutex mutex;
  std::map<int, const Interpreter*> interpreters;  // by rank
  run_ranks(config, ranks, kind, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    const parallel::RankPlan& plan = interpreter.plan();
    {
      const std::lock_guard lock(mutex);
      interpreters[plan.rank] = &interpreter;
    }
    const auto come_late = [&](parallel::Program parallel::RankPlan::* program) {
      const std::optional<int> awaited = early(plan);
      if (!awaited) return;
      comm::test::wait_until([&] {
        const std::lock_guard lock(mutex);
        const auto peer = interpreters.find(*awaited);
        if (peer == interpreters.end()) return false;
        const ProgressBoard::Reading reading = peer->second->progress();
        return reading.program == &(peer->second->plan().*program) && reading.next < 0 && !reading.idle();
      });
    };
    come_late(&parallel::RankPlan::train);
    interpreter.run_step(batches, {.update = 1, .lr = 1e-3f});
    EXPECT_TRUE(std::isfinite(interpreter.synchronize_result().loss));
    interpreter.synchronize();
    come_late(&parallel::RankPlan::evaluate);
    EXPECT_TRUE(std::isfinite(interpreter.synchronize_evaluation(batches, 2).loss));
  });
}

// The first of two stages comes late.
void expect_that_no_launch_waits_for_a_stage(DeviceKind kind, int data) {
  Config config = small_job(4);
  config.parallel.size[Axis::pipeline] = 2, config.parallel.size[Axis::data] = data, config.parallel.zero = data;
  config.train.global_batch = 2 * data;
  expect_that_no_launch_waits_for_a_message(kind, config, 2 * data, [](const parallel::RankPlan& plan) {
    return plan.coordinates()[Axis::pipeline] == 0 ? std::optional(plan.layout.moved(plan.rank, Axis::pipeline, 1))
                                                   : std::nullopt;
  });
}

// The first of two ranks that exchange by links comes late. A step of the other is no longer than what a stream holds.
void expect_that_no_launch_waits_for_an_exchange(DeviceKind kind, bool sequence_parallel) {
  Config config = small_job(1);
  config.parallel.size[Axis::tensor] = 2, config.parallel.sequence_parallel = sequence_parallel;
  config.train.global_batch = 2;
  config.comm.exchanges = CollectiveWay::links;
  expect_that_no_launch_waits_for_a_message(
      kind, config, 2, [](const parallel::RankPlan& plan) { return plan.rank == 0 ? std::optional(1) : std::nullopt; });
}

TEST(WarmUp, NoLaunchWaitsForAMessage) { expect_that_no_launch_waits_for_a_stage(DeviceKind::host, 1); }
TEST(WarmUp, NoLaunchWaitsForAnExchangeByLinks) {
  for (const bool sequence_parallel : {true, false})
    expect_that_no_launch_waits_for_an_exchange(DeviceKind::host, sequence_parallel);
}

class GpuWarmUp : public testing::TestWithParam<int> {};

TEST_P(GpuWarmUp, NoLaunchWaitsForAMessage) {
  const int data = GetParam(), ranks = 2 * data;
  std::string why;
  if (cuda_device_count(&why) < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs; " << why;
  expect_that_no_launch_waits_for_a_stage(DeviceKind::cuda, data);
}
TEST(GpuTensorWarmUp, NoLaunchWaitsForAnExchangeByLinks) {
  std::string why;
  if (cuda_device_count(&why) < 2) GTEST_SKIP() << "needs 2 GPUs; " << why;
  for (const bool sequence_parallel : {true, false})
    expect_that_no_launch_waits_for_an_exchange(DeviceKind::cuda, sequence_parallel);
}
INSTANTIATE_TEST_SUITE_P(DataRanks, GpuWarmUp, testing::Values(1, 2));

// Launches enough kernels to fill a GPU's launch queue several times over, and a message after every few hundred of them: a
// thread that waits for room in the queue must not keep the other rank from sending.
TEST(GpuLaunchQueue, AFullOneKeepsNoPeerFromSending) {
  std::string why;
  if (cuda_device_count(&why) < 2) GTEST_SKIP() << "needs 2 GPUs; " << why;
  Config config = small_job(4);
  config.model.layers = 48;
  config.parallel.size[Axis::pipeline] = 2;
  config.train.global_batch = 32;
  run_ranks(config, 2, DeviceKind::cuda, [](Interpreter& interpreter, SyntheticBatches& batches) {
    for (std::int64_t step = 1; step <= 4; ++step) interpreter.run_step(batches, {.update = step, .lr = 1e-3f});
    while (interpreter.pending_results() > 0) EXPECT_TRUE(std::isfinite(interpreter.synchronize_result().loss));
  });
}

}  // namespace
}  // namespace plait::runtime
