// plait bench p2p --concurrent: compares messages between all pairs at once, and across the middle of the job, with each pair
// alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_ranks.h"
#include "bench/link_speed.h"
#include "comm/p2p/link.h"

namespace plait::bench {

struct ConcurrentBenchmarkRequest {
  BenchRanks ranks;
  std::size_t bytes = 0;  // of a message; 0: 64 MB on GPUs, 1 MB on CPUs
  int rounds = 5;         // every figure is the median over these
  std::vector<std::string> argv;
  comm::p2p::LinkMaker make_link = comm::p2p::make_link;
  NominalRate nominal = nominal_rate;
};

// Each pair uses the choice of `comm.p2p: auto`. The bisection: rank r and rank r + n / 2, both ways at once; this split of the
// job crosses hosts and sockets if ranks are placed in their order.
// {"benchmark": "p2p concurrent", the head, "bytes", "rounds",
//  "pairs": [{"from", "to", "link", "transport", "alone_gb_per_s", "at_once_gb_per_s", "nominal_gb_per_s", "of_nominal"}],
//  "all_pairs": {"pairs", "gb_per_s", "of_alone"}, "bisection": {the same}}
//   gb_per_s  of all pairs together, by the slowest
//   of_alone  relative to the sum of the same pairs' rates alone
// Returns the exit status. CommError when a message arrives wrong or not at all.
int benchmark_concurrent(const ConcurrentBenchmarkRequest& request, const BenchOutput& output);

std::string concurrent_table(const nlohmann::ordered_json& result);  // at most 80 columns

}  // namespace plait::bench
