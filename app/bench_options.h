// Options that benches share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/bench_ranks.h"
#include "bench/link_methods.h"
#include "bench/sizes.h"

namespace plait {

void add_rank_options(CLI::App& command, bench::BenchRanks& ranks, double& timeout_s);
void add_size_options(CLI::App& command, bench::SizeOptions& sizes);
void add_method_options(CLI::App& command, bench::MethodFilter& filter);

}  // namespace plait
