// The subcommands of `plait bench`, one function each, and the options that they share. Each registers itself with `bench`.
#pragma once

#include <CLI/CLI.hpp>

#include "bench/bench_ranks.h"
#include "bench/link_methods.h"
#include "bench/sizes.h"

namespace plait {

// argc and argv: for starting rank processes.
void add_bench_step_command(CLI::App& bench, int& status, int argc, char** argv);
void add_bench_p2p_command(CLI::App& bench, int& status, int argc, char** argv);
void add_bench_collectives_command(CLI::App& bench, int& status, int argc, char** argv);
void add_bench_calibrate_command(CLI::App& bench, int& status, int argc, char** argv);
void add_bench_ring_command(CLI::App& bench, int& status, int argc, char** argv);

void add_rank_options(CLI::App& command, bench::BenchRanks& ranks, double& timeout_s);
void add_size_options(CLI::App& command, bench::SizeOptions& sizes);
void add_method_options(CLI::App& command, bench::MethodFilter& filter);

}  // namespace plait
