// The measured collectives, with the same definitions of size and bandwidth as nccl-tests (its doc/PERFORMANCE.md), so that
// figures can be compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace plait::bench {

enum class CollectiveKind { all_reduce, reduce_scatter, all_gather, all_to_all };

std::string to_string(CollectiveKind kind);
std::optional<CollectiveKind> collective_named(const std::string& name);
std::vector<CollectiveKind> all_collectives();

// "size" is the larger of what a rank sends and receives. Algorithm bandwidth is size / time. Bus bandwidth is that times this
// factor: the rate of the busiest link of an ideal algorithm, which does not depend on the number of ranks:
//   all_reduce 2 (n - 1) / n     reduce_scatter, all_gather, all_to_all (n - 1) / n
double bus_bandwidth_factor(CollectiveKind kind, int ranks);

// Elements in the "count" column. For all_gather, reduce_scatter and all_to_all these are the elements of one rank's part.
std::int64_t shown_count(CollectiveKind kind, std::int64_t elements, int ranks);

bool has_reduction(CollectiveKind kind);
bool is_in_place(CollectiveKind kind);  // Communicator offers each kind in one form only

}  // namespace plait::bench
