#include "bench/collective_kinds.h"

#include <array>
#include <cstdint>

#include "core/error.h"

namespace plait::bench {
namespace {

constexpr std::array<const char*, 4> names{"all_reduce", "reduce_scatter", "all_gather", "all_to_all"};

}  // namespace

std::string to_string(CollectiveKind kind) { return names[static_cast<std::size_t>(kind)]; }

std::optional<CollectiveKind> collective_named(const std::string& name) {
  for (const CollectiveKind kind : all_collectives()) {
    if (name == to_string(kind)) return kind;
  }
  return std::nullopt;
}

std::vector<CollectiveKind> all_collectives() {
  return {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather, CollectiveKind::all_to_all};
}

double bus_bandwidth_factor(CollectiveKind kind, int ranks) {
  require(ranks > 0, "bus_bandwidth_factor: no ranks");
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case CollectiveKind::all_reduce: return 2 * others;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all: return others;
  }
  throw InternalError("a collective without a bus bandwidth");
}

std::int64_t shown_count(CollectiveKind kind, std::int64_t elements, int ranks) {
  return is_in_place(kind) ? elements : elements / ranks;
}

bool has_reduction(CollectiveKind kind) { return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter; }

bool is_in_place(CollectiveKind kind) { return kind == CollectiveKind::all_reduce; }

}  // namespace plait::bench
