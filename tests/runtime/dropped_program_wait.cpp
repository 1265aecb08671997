// Two pipeline stages as threads, with the waits of the program or, given "drop", without those of the forward passes: a stage
// then reads its input while it is still being received. tests/runtime/program_race_test.cpp runs it under ThreadSanitizer.
#include <string_view>

#include "runtime/rank_threads.h"

int main(int argc, char** argv) {
  using namespace plait;
  using namespace plait::runtime;
  const bool drop = argc > 1 && std::string_view(argv[1]) == "drop";
  Config config;
  config.model.layers = 2, config.model.hidden = 32, config.model.heads = 4, config.model.vocab = 61;
  config.data.sequence_length = 16;
  config.train.steps = 3, config.train.global_batch = 16, config.train.micro_batch = 2;
  config.parallel.size[Axis::pipeline] = 2, config.parallel.size[Axis::data] = 1;
  run_ranks(
      config, 2, DeviceKind::host,
      [&](Interpreter& interpreter, SyntheticBatches& batches) {
        for (std::int64_t step = 1; step <= config.train.steps; ++step)
          interpreter.run_step(batches, {.update = step, .lr = 1e-3f});
      },
      [&](parallel::RankPlan& plan) {
        for (parallel::Instruction& i : plan.train.instructions) {
          if (drop && i.kind == parallel::InstructionKind::forward) i.waits.clear();
        }
      });
}
