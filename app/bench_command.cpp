// plait bench step|p2p|collectives|ring|calibrate [...]
#include "bench_commands.h"
#include "commands.h"

namespace plait {

void add_bench_command(CLI::App& app, int& status, int argc, char** argv) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Measure training steps, peer-to-peer messages, collectives, and this machine for the planner");
  bench->require_subcommand(1);
  add_bench_step_command(*bench, status, argc, argv);
  add_bench_p2p_command(*bench, status, argc, argv);
  add_bench_collectives_command(*bench, status, argc, argv);
  add_bench_ring_command(*bench, status, argc, argv);
  add_bench_calibrate_command(*bench, status, argc, argv);
}

}  // namespace plait
