// plait bench collectives: what collectives of all ranks cost, as nccl-tests counts it, with their results verified.
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
  int rounds = 5;            // times are their median
  int max_ctas = 0;          // NCCL: bound on the thread blocks of a collective; 0: NCCL's choice
  std::vector<std::string> argv;
  comm::CommunicatorMaker make_communicator = comm::make_communicator;
};

// {"benchmark": "collectives", "mode", "ranks", "device", "backend", "rounds", "dtype", "notes", "collectives": [{"collective",
//  "results": [{"bytes", "count", "type", "redop", "root", "in_place", "microseconds", "algbw_gb_per_s", "busbw_gb_per_s",
//  "wrong"}], "average_busbw_gb_per_s"}], "average_busbw_gb_per_s", "wrong"}
// A time is of the slowest rank, back to back, in stream time. "wrong" counts elements over all ranks, all of them compared.
// Returns the exit status: 3 when an element was wrong.
int benchmark_collectives(const CollectivesBenchmarkRequest& request, const BenchOutput& output);

// The result in nccl-tests' columns.
std::string collectives_table(const nlohmann::ordered_json& result);

}  // namespace plait::bench
