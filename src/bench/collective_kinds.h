// The collectives that are measured, and what nccl-tests counts for each (its doc/PERFORMANCE.md), so that the figures compare.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace plait::bench {

enum class CollectiveKind { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all };

std::string to_string(CollectiveKind kind);
std::optional<CollectiveKind> collective_named(const std::string& name);
std::vector<CollectiveKind> all_collectives();

// "size" is the larger of what a rank gives and gets. Algorithm bandwidth = size / time; bus bandwidth = that times this
// factor, which makes it the rate of the busiest link of an ideal algorithm, whatever the number of ranks:
//   all_reduce 2 (n - 1) / n     reduce_scatter, all_gather, all_to_all (n - 1) / n     broadcast 1
double bus_bandwidth_factor(CollectiveKind kind, int ranks);

// Elements in the "count" column: of all_gather, reduce_scatter and all_to_all those of one rank's part.
std::int64_t shown_count(CollectiveKind kind, std::int64_t elements, int ranks);

bool has_reduction(CollectiveKind kind);
bool is_in_place(CollectiveKind kind);  // the Communicator's only form of it

}  // namespace plait::bench
