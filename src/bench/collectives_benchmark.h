// plait bench collectives: times collectives among all ranks, counted as in nccl-tests, and verifies their results.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_ranks.h"
#include "bench/collective_kinds.h"
#include "bench/sizes.h"
#include "comm/communicator.h"
#include "core/dtype.h"

namespace plait::bench {

struct CollectivesBenchmarkRequest {
  BenchRanks ranks;
  std::vector<CollectiveKind> kinds = all_collectives();
  SizeOptions sizes;
  DType dtype = DType::f32;  // or bf16
  int rounds = 5;            // a time is the median over these
  int max_ctas = 0;          // NCCL: limit on thread blocks of a collective; 0: NCCL's choice
  std::vector<std::string> argv;
  comm::CommunicatorMaker make_communicator = comm::make_communicator;
};

// {"benchmark": "collectives", "mode", "ranks", "device", "backend", "rounds", "dtype", "notes", "collectives": [{"collective",
//  "results": [{"bytes", "count", "type", "redop", "root", "in_place", "microseconds", "algbw_gb_per_s", "busbw_gb_per_s",
//  "wrong"}], "average_busbw_gb_per_s"}], "average_busbw_gb_per_s", "wrong"}
// Times are the slowest rank's, back to back, measured on its stream. "wrong" counts wrong elements over all ranks; every
// element is compared. Returns the exit status: 3 if an element was wrong.
int benchmark_collectives(const CollectivesBenchmarkRequest& request, const BenchOutput& output);

// The result in nccl-tests' columns.
std::string collectives_table(const nlohmann::ordered_json& result, int width);

}  // namespace plait::bench
