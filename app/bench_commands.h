// The subcommands of `plait bench`, one function each. Each registers itself with `bench`.
#pragma once

#include <CLI/CLI.hpp>

namespace plait {

// argc and argv: for starting rank processes.
void add_bench_step_command(CLI::App& bench, int& status, int argc, char** argv);
void add_bench_p2p_command(CLI::App& bench, int& status, int argc, char** argv);
void add_bench_collectives_command(CLI::App& bench, int& status, int argc, char** argv);
void add_bench_calibrate_command(CLI::App& bench, int& status, int argc, char** argv);
void add_bench_ring_command(CLI::App& bench, int& status, int argc, char** argv);

}  // namespace plait
