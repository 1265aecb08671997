// plait bench collectives: times collectives among all ranks, counted as in nccl-tests, and verifies their results.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_ranks.h"
#include "bench/sizes.h"
#include "comm/communicator.h"
#include "core/dtype.h"
#include "core/names.h"

namespace plait::bench {

// The measured collectives, with the same definitions of size and bandwidth as nccl-tests (its doc/PERFORMANCE.md), so that
// figures can be compared.
enum class CollectiveKind { all_reduce, reduce_scatter, all_gather, all_to_all };

std::vector<CollectiveKind> all_collectives();

// "size" is the larger of what a rank sends and receives. Algorithm bandwidth is size / time. Bus bandwidth is that times this
// factor: the rate of the busiest link of an ideal algorithm, which does not depend on the number of ranks:
//   all_reduce 2 (n - 1) / n     reduce_scatter, all_gather, all_to_all (n - 1) / n
double bus_bandwidth_factor(CollectiveKind kind, int ranks);

// Elements in the "count" column. For all_gather, reduce_scatter and all_to_all these are the elements of one rank's part.
std::int64_t shown_count(CollectiveKind kind, std::int64_t elements, int ranks);

bool has_reduction(CollectiveKind kind);
bool is_in_place(CollectiveKind kind);  // Communicator offers each kind in one form only

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

namespace plait {
template <>
inline constexpr auto names<bench::CollectiveKind> =
    std::to_array<Name<bench::CollectiveKind>>({{bench::CollectiveKind::all_reduce, "all_reduce"},
                                                {bench::CollectiveKind::reduce_scatter, "reduce_scatter"},
                                                {bench::CollectiveKind::all_gather, "all_gather"},
                                                {bench::CollectiveKind::all_to_all, "all_to_all"}});
}  // namespace plait
