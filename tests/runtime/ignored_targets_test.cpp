// Targets that do not count: a step follows the mean over those that do, in the whole global batch and in every layout.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

// Every fourth sample has no target that counts, and the others begin to count at different places: neither micro-batches nor
// replicas have equal numbers of them.
bool some_count(std::int64_t step, std::int64_t sample, std::int64_t token) {
  return sample % 4 != 1 && token >= (3 * sample + step) % 13;
}

std::int64_t counted_by(const SyntheticBatches::Counts& counts, const Config& config, std::int64_t step) {
  std::int64_t counted = 0;
  for (std::int64_t sample = 0; sample < config.train.global_batch; ++sample) {
    for (std::int64_t token = 0; token < config.data.sequence_length; ++token) counted += counts(step, sample, token) ? 1 : 0;
  }
  return counted;
}

Config masked_job() {
  Config config = small_job(4);
  config.data.sequence_length = 16;
  config.train.steps = 3, config.train.global_batch = 8, config.train.clip = 0.5;
  config.comm.bucket_mb = 0.02;
  return config;
}

// Values by parameter, in the order of the plan's pieces.
using Values = std::vector<double>;

double loss_by_hand(Interpreter& interpreter, const Config& config) {
  SyntheticBatches batches(interpreter.plan(), config.run.seed);  // all targets
  const int micro_batches = interpreter.plan().micro_batches;
  const Values losses = interpreter.synchronize_token_losses(batches, micro_batches);
  double sum = 0;
  for (std::size_t at = 0; at < losses.size(); ++at) {
    const auto sample = static_cast<std::int64_t>(at) / config.data.sequence_length,
               token = static_cast<std::int64_t>(at) % config.data.sequence_length;
    if (some_count(0, sample, token)) sum += losses[at];
  }
  return sum / static_cast<double>(counted_by(some_count, config, 0));
}

// The step's own numbers are compared with the losses of single tokens, summed up by hand, and with differences of that sum.
TEST(IgnoredTargets, TheGradientIsThatOfTheMeanOverThoseThatCount) {
  Config config = masked_job();
  config.model.layers = 1, config.model.hidden = 16, config.model.heads = 2;
  config.train.micro_batch = 2;
  config.precision.compute = "fp64";
  run_ranks(config, 1, DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    batches.set_counts(some_count);
    const Values before = interpreter.synchronize_read(interpreter.master());
    const double loss = loss_by_hand(interpreter, config);
    // Moves every weight by -g / (|g| + 1).
    interpreter.run_step(batches, {.update = 1, .lr = 1, .epsilon = 1, .weight_decay = 0, .clip = 0});
    const StepResult result = interpreter.synchronize_result();
    EXPECT_EQ(result.loss_tokens, counted_by(some_count, config, 0));
    EXPECT_LT(result.loss_tokens, config.train.global_batch * config.data.sequence_length / 2);
    EXPECT_NEAR(result.loss, loss, 1e-6 * loss);
    interpreter.synchronize();
    Values gradient = interpreter.synchronize_read(interpreter.master());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double moved = before[i] - gradient[i];
      gradient[i] = moved / (1 - std::abs(moved));
    }
    const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
    EXPECT_NEAR(result.grad_norm, norm, 1e-6 * norm);

    const Random random(1, "directions");
    double* const weights = interpreter.master().as<double>();
    std::copy(before.begin(), before.end(), weights);
    for (const auto& piece : interpreter.plan().flat.state_pieces()) {
      const auto first = static_cast<std::size_t>(piece.state_first), count = static_cast<std::size_t>(piece.count);
      Values direction(count);
      for (std::size_t i = 0; i < count; ++i)
        direction[i] = gradient[first + i] / norm + (random.below(2, first + i) == 0 ? 0.1 : -0.1);
      const auto move = [&](double by) {
        for (std::size_t i = 0; i < count; ++i) weights[first + i] = before[first + i] + by * direction[i];
        interpreter.publish_weights();
        return loss_by_hand(interpreter, config);
      };
      const double expected = std::inner_product(direction.begin(), direction.end(), gradient.begin() + piece.state_first, 0.0);
      constexpr double by = 1e-4;
      const double difference = (move(by) - move(-by)) / (2 * by);
      EXPECT_NEAR(difference, expected, 1e-6 * norm) << interpreter.plan().parameters[piece.parameter].name;
      move(0);
    }
  });
}

struct MaskedCase {
  std::string name;
  int ranks = 1;
  std::function<void(Config&)> set = [](Config&) {};
  friend std::ostream& operator<<(std::ostream& out, const MaskedCase& c) { return out << c.name; }
};

std::vector<MaskedCase> masked_cases() {
  std::vector<MaskedCase> list;
  for (const int zero : {0, 1, 2}) {
    list.push_back({"data_4_zero_" + std::to_string(zero), 4, [zero](Config& c) { c.parallel.zero = zero; }});
  }
  const auto mesh = [](Config& c, int pipeline, int data, int tensor) {
    c.parallel.size[Axis::pipeline] = pipeline, c.parallel.size[Axis::data] = data, c.parallel.size[Axis::tensor] = tensor;
  };
  list.push_back({"larger_micro_batches", 2, [=](Config& c) { mesh(c, 1, 2, 1), c.train.micro_batch = 2; }});
  list.push_back({"tensor_2", 2, [=](Config& c) { mesh(c, 1, 1, 2); }});
  list.push_back({"tensor_2_data_2_zero_2_recompute", 4,
                  [=](Config& c) { mesh(c, 1, 2, 2), c.parallel.zero = 2, c.parallel.recompute = Recompute::full; }});
  list.push_back({"tied_pipeline_2_data_2_zero_1", 4, [=](Config& c) { mesh(c, 2, 2, 1), c.parallel.zero = 1; }});
  list.push_back({"zb_v", 2, [=](Config& c) { mesh(c, 2, 1, 1), c.parallel.schedule = ScheduleKind::zb_v; }});
  list.push_back({"halves", 4, [=](Config& c) { mesh(c, 2, 1, 2), c.comm.braid = Braid::halves, c.train.micro_batch = 2; }});
  return list;
}

// bf16 keeps 8 bits of every partial sum.
void expect_the_serial_runs(const MaskedCase& c, DeviceKind kind, const std::string& compute) {
  const auto with = [&](Config config) {
    config.precision.compute = compute;
    if (compute == "bf16") config.precision.gradients = "bf16";
    config.precision.deterministic = kind == DeviceKind::cuda;
    return config;
  };
  const Config one = with(masked_job());
  Config many = one;
  c.set(many);
  const JobResult serial = run_job(one, 1, kind, some_count);
  const bool bf16 = compute == "bf16";
  expect_close(run_job(many, c.ranks, kind, some_count), serial, bf16 ? 4e-3f : 1e-5f, bf16 ? 3e-2f : 1e-4f,
               bf16 ? 6e-3 : same_parameters);
  for (std::size_t step = 0; step < serial.loss_tokens.size(); ++step)
    EXPECT_EQ(serial.loss_tokens[step], counted_by(some_count, one, static_cast<std::int64_t>(step)));
}

class IgnoredTargetLayouts : public testing::TestWithParam<MaskedCase> {};
TEST_P(IgnoredTargetLayouts, GiveTheSerialRunsLossesAndParameters) {
  expect_the_serial_runs(GetParam(), DeviceKind::host, "fp32");
}
INSTANTIATE_TEST_SUITE_P(Cpu, IgnoredTargetLayouts, testing::ValuesIn(masked_cases()),
                         [](const auto& layout) { return layout.param.name; });

TEST(IgnoredTargets, GradientsMayBeBf16) { expect_the_serial_runs(masked_cases().at(2), DeviceKind::host, "bf16"); }

class GpuIgnoredTargetLayouts : public testing::TestWithParam<MaskedCase> {};
TEST_P(GpuIgnoredTargetLayouts, GiveTheSerialRunsLossesAndParameters) {
  std::string why;
  if (cuda_device_count(&why) == 0) GTEST_SKIP() << why;
  for (const char* compute : {"fp32", "bf16"}) expect_the_serial_runs(GetParam(), DeviceKind::cuda, compute);
}
INSTANTIATE_TEST_SUITE_P(Cuda, GpuIgnoredTargetLayouts,
                         testing::Values(masked_cases().at(2), masked_cases().at(4), masked_cases().at(6)),
                         [](const auto& layout) { return layout.param.name; });

// The second step of three has no target that counts.
void expect_an_idle_step(DeviceKind kind, int ranks) {
  Config config = masked_job();
  config.parallel.zero = ranks > 1 ? 2 : 0;
  run_ranks(config, ranks, kind, [&](Interpreter& interpreter, SyntheticBatches& batches) {
    batches.set_counts([](std::int64_t step, std::int64_t, std::int64_t) { return step != 1; });
    const auto state = [&] {
      interpreter.synchronize();
      return std::vector{
          interpreter.synchronize_read(interpreter.master()), interpreter.synchronize_read(interpreter.weights()),
          interpreter.synchronize_read(interpreter.exp_avg()), interpreter.synchronize_read(interpreter.exp_avg_sq())};
    };
    const auto step = [&](std::int64_t update) {
      interpreter.run_step(batches, {.update = update, .lr = 1e-2f});
      return interpreter.synchronize_result();
    };
    EXPECT_GT(step(1).loss, 0);
    const auto before = state();
    const StepResult idle = step(2);
    EXPECT_EQ(idle.loss_tokens, 0);
    EXPECT_EQ(idle.loss, 0);
    EXPECT_EQ(idle.grad_norm, 0);
    EXPECT_FALSE(idle.halted);
    EXPECT_EQ(state(), before);
    const StepResult next = step(3);
    EXPECT_EQ(next.loss_tokens, interpreter.plan().tokens_per_step());
    EXPECT_GT(next.loss, 0);
    EXPECT_NE(state(), before);
  });
}

TEST(IgnoredTargets, AStepWithoutAnyThatCountsChangesNothing) {
  for (const int ranks : {1, 2}) expect_an_idle_step(DeviceKind::host, ranks);
}

TEST(GpuIgnoredTargets, AStepWithoutAnyThatCountsChangesNothing) {
  std::string why;
  if (cuda_device_count(&why) == 0) GTEST_SKIP() << why;
  expect_an_idle_step(DeviceKind::cuda, 1);
}

TEST(IgnoredTargets, AnEvaluationIsTheMeanOverThoseThatCount) {
  Config config = masked_job();
  double by_hand = 0;
  run_ranks(config, 1, DeviceKind::host,
            [&](Interpreter& interpreter, SyntheticBatches&) { by_hand = loss_by_hand(interpreter, config); });
  for (const bool pipeline : {false, true}) {
    if (pipeline) config.parallel.size[Axis::pipeline] = 2, config.parallel.size[Axis::data] = 1;
    run_ranks(config, 2, DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches&) {
      const auto evaluate = [&](const SyntheticBatches::Counts& counts) {
        SyntheticBatches batches(interpreter.plan(), config.run.seed);
        batches.set_counts(counts);
        return interpreter.synchronize_evaluation(batches, interpreter.plan().micro_batches);
      };
      for (int again = 0; again < 2; ++again) {
        const EvaluationLoss some = evaluate(some_count);
        EXPECT_EQ(some.loss_tokens, counted_by(some_count, config, 0));
        EXPECT_NEAR(some.loss, by_hand, 1e-6 * by_hand);
      }
      const EvaluationLoss none = evaluate([](std::int64_t, std::int64_t, std::int64_t) { return false; });
      EXPECT_EQ(none.loss_tokens, 0);
      EXPECT_EQ(none.loss, 0);
      EXPECT_EQ(evaluate({}).loss_tokens, interpreter.plan().tokens_per_step());
    });
  }
}

}  // namespace
}  // namespace plait::runtime
