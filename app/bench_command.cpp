// plait bench step|p2p|collectives|ring|calibrate [...]
#include <spdlog/fmt/fmt.h>

#include "bench_commands.h"
#include "commands.h"
#include "core/choices.h"
#include "core/limits.h"
#include "usage.h"

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

void add_rank_options(CLI::App& command, bench::BenchRanks& ranks, double& timeout_s) {
  command.add_option("--ranks", ranks.ranks, "Ranks, one device each; 0: all GPUs, or 2 on CPUs")
      ->capture_default_str()
      ->check(whole_number_in(0, limits::ranks.most));
  command.add_flag("--processes", ranks.processes,
                   "Run each rank as a process instead of a thread (ipc and vmm need processes, direct needs threads)");
  command.add_option("--device", ranks.device, "auto: GPUs if there are any, otherwise CPUs")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command.add_option(
      "--rendezvous", ranks.rendezvous,
      "Under torchrun, srun or mpirun, whose processes are the ranks: where they meet, a directory that all share, "
      "or tcp (launch.rendezvous)");
  command.add_option("--interface", ranks.interface, "Where CPUs listen, and ranks of several hosts (comm.interface)")
      ->capture_default_str();
  command.add_option("--timeout", timeout_s, "Seconds that one measurement may take before it is an error")
      ->capture_default_str()
      ->check(number_in(0.01, 1e6));
}

void add_size_options(CLI::App& command, bench::SizeOptions& sizes) {
  command.add_option("--min", sizes.min, "Smallest size: 1K = 1024 bytes (default: 1K)")->type_name("SIZE");
  command
      .add_option("--max", sizes.max,
                  "Largest size; sizes grow by a factor of 4 (default: 1G, on CPUs 16M; less if memory is short)")
      ->type_name("SIZE");
  command.add_option("--sizes", sizes.sizes, "Exactly these sizes: 4K,1M,16M")->delimiter(',')->type_name("SIZE");
}

void add_method_options(CLI::App& command, bench::MethodFilter& filter) {
  command.add_option("--transports", filter.transports, "Only these of " + names_listed<Transport>(", "))->delimiter(',');
  command.add_option("--movers", filter.movers, "Only these of " + names_listed<Mover>(", "))->delimiter(',');
}

}  // namespace plait
