// How large a job can be simulated, and how fast. How time grows with ranks is measured by hand (scripts/draw-growth):
//   test_plan --gtest_also_run_disabled_tests --gtest_filter='SimulatorScale.DISABLED_Growth*'
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>

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

constexpr unsigned million = 1U << 20;  // a power of two: then an odd multiple gives every smaller rank another remainder

// About what an H100 does: 5 % of the work differs from rank to rank if `differs`.
WorkOf h100_work(const ProgramSet& set, bool differs) {
  return [&set, differs](int rank, int index) -> Work {
    const parallel::Instruction& i = set.program(rank).at(index);
    const bool end = i.block == 0 || i.block == set.head();
    const double own = differs ? 1 + 0.05 * ((rank * 2654435761U) % million) / million : 1;
    switch (i.kind) {
      case InstructionKind::load_batch: return {.seconds = 20e-6};
      case InstructionKind::forward:
        return {.seconds = own * (end ? 0.3e-3 : 1.2e-3), .bytes = end ? 0 : 88e6, .inside_seconds = 40e-6, .inside = 4};
      case InstructionKind::backward_input:
      case InstructionKind::backward_weight:
        return {.seconds = own * (end ? 0.3e-3 : 1.2e-3), .bytes = end ? 0 : 44e6, .inside_seconds = 20e-6, .inside = 2};
      case InstructionKind::send_activation:
      case InstructionKind::send_gradient: return {.seconds = 10e-6, .bytes = 6.3e6, .compute_slowdown = 0.02};
      case InstructionKind::reduce_gradients: return {.seconds = 1e-3, .bytes = 200e6, .compute_slowdown = 0.05};
      case InstructionKind::gather_weights: return {.seconds = 0.5e-3, .bytes = 100e6, .compute_slowdown = 0.05};
      case InstructionKind::reduce_scalars: return {.seconds = 200e-6};
      case InstructionKind::gradient_norm: return {.seconds = 500e-6};
      case InstructionKind::update: return {.seconds = 3e-3};
      case InstructionKind::receive_activation:
      case InstructionKind::receive_gradient: break;
    }
    return {};
  };
}

struct Measured {
  double seconds = 0;  // of CPU time: other work on the machine does not count
  Simulated simulated;
};

Measured simulate(const parallel::Layout& layout, int micro_batches, bool differs, bool merge) {
  const ProgramSet set = gpt3(layout, micro_batches);
  const topology::Network network = Rails{.hosts = layout.ranks() / 8}.network();
  const std::clock_t begin = std::clock();
  Measured measured{.simulated = simulate_step(set, h100_work(set, differs), network, in_order(layout.ranks()),
                                               {.merge_equal_ranks = merge})};
  measured.seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const Simulated& s = measured.simulated;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%d ranks (%s), %d classes: step of %.1f ms, bubble %.1f %%, simulated in %.4f s, at most %ld MB until now\n",
              layout.ranks(), layout.to_string().c_str(), s.classes(), 1e3 * s.step_seconds, 100 * s.mean_bubble_fraction(),
              measured.seconds, usage.ru_maxrss / 1024);
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

// Each size in its turn, so that the most memory until now is that of the last one.
void simulate_growing(bool differs) {
  for (int data = 1; data <= 256; data *= 2) {
    const parallel::Layout layout{.pipeline = 8, .data = data, .tensor = 8};
    const Measured measured = simulate(layout, 32, differs, true);
    EXPECT_EQ(measured.simulated.classes() == layout.ranks(), differs);
  }
}

TEST(SimulatorScale, DISABLED_GrowthOfRanksAlike) { simulate_growing(false); }
TEST(SimulatorScale, DISABLED_GrowthOfRanksAllDifferent) { simulate_growing(true); }

}  // namespace
}  // namespace plait::plan
