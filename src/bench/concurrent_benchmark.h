// plait bench p2p --concurrent: messages between all pairs at once, and across the middle of the job, beside each pair alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_ranks.h"
#include "bench/nominal_rate.h"
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

// Each pair goes by what `comm.p2p: auto` chooses for it. The bisection: rank r and rank r + n / 2, both ways at once; of the
// ways to halve the job the one that crosses hosts and sockets where ranks are placed in their order.
// {"benchmark": "p2p concurrent", the head, "bytes", "rounds",
//  "pairs": [{"from", "to", "link", "transport", "alone_gb_per_s", "at_once_gb_per_s", "nominal_gb_per_s", "of_nominal"}],
//  "all_pairs": {"pairs", "gb_per_s", "of_alone"}, "bisection": {the same}}
//   gb_per_s  of all pairs together, by the one that took longest
//   of_alone  of the sum of what the same pairs carry alone
// Returns the exit status. CommError when a message arrives wrong or not at all.
int benchmark_concurrent(const ConcurrentBenchmarkRequest& request, const BenchOutput& output);

std::string concurrent_table(const nlohmann::ordered_json& result);  // at most 80 columns

}  // namespace plait::bench
