// How large a job can be simulated, and how fast. The largest is run by hand:
//   /usr/bin/time -v test_plan --gtest_also_run_disabled_tests --gtest_filter='*SixteenThousand*'
#include <gtest/gtest.h>

#include <chrono>

#include "parallel/job_plan.h"
#include "plan/simulation/simulator.h"
#include "plan/simulation_networks.h"

namespace plait::plan {
namespace {

using parallel::InstructionKind;
using parallel::ProgramSet;

// GPT-3's 96 blocks, bf16: the programs as a training run makes them.
ProgramSet gpt3(const parallel::Layout& layout, int micro_batches) {
  Config config;
  config.model.layers = 96, config.model.hidden = 12288, config.model.heads = 96, config.model.vocab = 50304,
  config.model.ffn = 4 * 12288;
  config.data.sequence_length = 2048;
  config.train.micro_batch = 1, config.train.global_batch = micro_batches * layout.data;
  config.parallel.pipeline = layout.pipeline, config.parallel.data = layout.data, config.parallel.tensor = layout.tensor;
  config.parallel.zero = 1;
  return training_programs(make_stage_plans(config, 50304, layout, DeviceKind::cuda));
}

// About what an H100 does: 5 % of the work differs from rank to rank if `differs`.
WorkOf h100_work(const ProgramSet& set, bool differs) {
  return [&set, differs](int rank, int index) -> Work {
    const parallel::Instruction& i = set.program(rank).at(index);
    const bool end = i.block == 0 || i.block == set.head();
    const double own = differs ? 1 + 0.05 * ((rank * 2654435761U) % 1024) / 1024 : 1;
    switch (i.kind) {
      case InstructionKind::load_batch:
        return {.seconds = 20e-6};
      case InstructionKind::forward:
        return {.seconds = own * (end ? 0.3e-3 : 1.2e-3), .bytes = end ? 0 : 88e6, .inside_seconds = 40e-6, .inside = 4};
      case InstructionKind::backward_input:
      case InstructionKind::backward_weight:
        return {.seconds = own * (end ? 0.3e-3 : 1.2e-3), .bytes = end ? 0 : 44e6, .inside_seconds = 20e-6, .inside = 2};
      case InstructionKind::send_activation:
      case InstructionKind::send_gradient:
        return {.seconds = 10e-6, .bytes = 6.3e6, .compute_slowdown = 0.02};
      case InstructionKind::reduce_gradients:
        return {.seconds = 1e-3, .bytes = 200e6, .compute_slowdown = 0.05};
      case InstructionKind::gather_weights:
        return {.seconds = 0.5e-3, .bytes = 100e6, .compute_slowdown = 0.05};
      case InstructionKind::reduce_scalars:
        return {.seconds = 200e-6};
      case InstructionKind::gradient_norm:
        return {.seconds = 500e-6};
      case InstructionKind::update:
        return {.seconds = 3e-3};
      case InstructionKind::receive_activation:
      case InstructionKind::receive_gradient:
        break;
    }
    return {};
  };
}

struct Measured {
  double seconds = 0;
  Simulated simulated;
};

Measured simulate(const parallel::Layout& layout, int micro_batches, bool differs, bool merge) {
  const ProgramSet set = gpt3(layout, micro_batches);
  const Network network = Rails{.hosts = layout.ranks() / 8}.network();
  const auto begin = std::chrono::steady_clock::now();
  Measured measured{.simulated = simulate_step(set, h100_work(set, differs), network, in_order(layout.ranks()),
                                               {.merge_equal_ranks = merge})};
  measured.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Simulated& s = measured.simulated;
  std::printf("%d ranks (%s), %d classes: step of %.1f ms, bubble %.1f %%, simulated in %.2f s\n", layout.ranks(),
              layout.to_string().c_str(), s.classes(), 1e3 * s.step_seconds, 100 * s.mean_bubble_fraction(), measured.seconds);
  return measured;
}

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr parallel::Layout thousand{.pipeline = 8, .data = 16, .tensor = 8};
constexpr double bound_seconds = 20;  // of what takes 1: machines differ, and share their cores
#else
constexpr parallel::Layout thousand{.pipeline = 4, .data = 4, .tensor = 8};
constexpr double bound_seconds = 60;
#endif

TEST(SimulatorScale, AThousandRanksTakeSeconds) {
  const Measured merged = simulate(thousand, 16, false, true);
  const Measured all = simulate(thousand, 16, false, false);
  EXPECT_LT(merged.simulated.classes(), thousand.ranks());
  EXPECT_EQ(merged.simulated.step_seconds, all.simulated.step_seconds);
  EXPECT_LT(merged.seconds, bound_seconds);
  EXPECT_LT(all.seconds, bound_seconds);
}

TEST(SimulatorScale, DISABLED_SixteenThousandRanksAlike) { EXPECT_LT(simulate({16, 128, 8}, 32, false, true).seconds, 60); }
TEST(SimulatorScale, DISABLED_SixteenThousandRanksAllDifferent) {
  EXPECT_LT(simulate({16, 128, 8}, 32, true, true).seconds, 60);
}

}  // namespace
}  // namespace plait::plan
