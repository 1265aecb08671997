// Simulated steps of GPT-3 on machines of any size.
#pragma once

#include <sys/resource.h>

#include <cstdio>
#include <ctime>

#include "parallel/job_plan.h"
#include "plan/simulation/simulator.h"
#include "plan/simulation_networks.h"

namespace plait::plan::test {

// GPT-3's 96 blocks in bf16: the programs of a training run.
inline parallel::ProgramSet gpt3(const parallel::Layout& layout, int micro_batches) {
  Config config;
  config.model.layers = 96, config.model.hidden = 12288, config.model.heads = 96, config.model.vocab = 50304,
  config.model.ffn = 4 * 12288;
  config.data.sequence_length = 2048;
  config.train.micro_batch = 1, config.train.global_batch = micro_batches * layout.size(Axis::data);
  config.parallel.size[Axis::pipeline] = layout.size(Axis::pipeline),
  config.parallel.size[Axis::data] = layout.size(Axis::data), config.parallel.size[Axis::tensor] = layout.size(Axis::tensor);
  config.parallel.zero = 1;
  return training_programs(make_stage_plans(config, parallel::Decision{}, 50304, layout, DeviceKind::cuda));
}

inline constexpr unsigned million =
    1U << 20;  // a power of two: then an odd multiple gives every smaller rank another remainder

// Roughly an H100; if `differs`, 5 % of the work differs from rank to rank.
inline WorkOf h100_work(const parallel::ProgramSet& set, bool differs) {
  return [&set, differs](int rank, int index) -> Work {
    const parallel::Instruction& i = set.program(rank).at(index);
    const bool end = i.segment == 0 || i.segment == set.head();
    const double own = differs ? 1 + 0.05 * ((rank * 2654435761U) % million) / million : 1;
    using enum parallel::InstructionKind;
    switch (i.kind) {
      case load_batch: return {.seconds = 20e-6};
      case forward:
      case backward_input:
      case backward_weight: return {.seconds = own * (end ? 0.3e-3 : 1.2e-3)};
      case loss: return {.seconds = own * 0.1e-3};
      case collective: {
        const parallel::Collective& c = i.collective;
        if (c.operation == Operation::max || c.operation == Operation::barrier || c.purpose == Purpose::scalars)
          return {.seconds = 200e-6};
        if (c.purpose == Purpose::weights) return {.seconds = 0.5e-3, .bytes = 100e6, .compute_slowdown = 0.05};
        if (c.purpose == Purpose::gradients) return {.seconds = 1e-3, .bytes = 200e6, .compute_slowdown = 0.05};
        return {.seconds = 20e-6, .bytes = 44e6, .compute_slowdown = 0.02};
      }
      case send_activation:
      case send_gradient: return {.seconds = 10e-6, .bytes = 6.3e6, .compute_slowdown = 0.02};
      case scale_weights:
      case quantize_weights: return {.seconds = 100e-6};
      case gradient_norm: return {.seconds = 500e-6};
      case update: return {.seconds = 3e-3};
      case add_residual:
      case norm:
      case round_norm:
      case norm_backward:
      case round_gradient:
      case receive_activation:
      case receive_gradient: break;
    }
    return {};
  };
}

struct Measured {
  double seconds = 0;  // of CPU time: other work on the machine does not count
  Simulated simulated;
};

inline Measured simulate(const parallel::Layout& layout, int micro_batches, bool differs, bool merge) {
  const parallel::ProgramSet set = gpt3(layout, micro_batches);
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

}  // namespace plait::plan::test
