// Adds up the parts that other ranks sent.
#pragma once

#include <cstddef>
#include <span>

#include "comm/communicator.h"
#include "comm/p2p/mover.h"
#include "core/collective.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::comm::p2p {

inline constexpr int most_parts = link_collectives::most_ranks;

// out[i] = parts[0][i] + parts[1][i] + ..., in this order; or the largest of them, ignoring NaN. Sums of bf16 are computed in
// fp32 and rounded once. Each part has the elements of `out`; one of them may be `out` itself. Between 1 and most_parts of
// them.
void combine(StreamRef stream, View out, std::span<const std::byte* const> parts, Reduction reduction);

// combine() by a kernel of the stream's device. CUDA streams only.
void combine_by_kernel(StreamRef stream, View out, std::span<const std::byte* const> parts, Reduction reduction);

// Another rank's share of a short all-reduce: the copy pushed to it, between counters, and the part it pushes.
struct CountedPart {
  CountedCopy pushed;
  CounterValue arrival;
  const std::byte* arrived = nullptr;
};
// An all-reduce by one thread block, which waits for the others' parts as copy_between_counters does for counters: it pushes
// `data` to all and combines the parts into it, as combine does. `parts`: by rank, empty for this rank. At most
// most_ranks_by_one_kernel of them and most_summed_by_one_kernel bytes.
void combine_between_counters(StreamRef stream, View data, std::span<const CountedPart> parts, Reduction reduction);
// Loads all of its kernels to the current device.
void load_combining_kernels();

}  // namespace plait::comm::p2p
