// Adding up what several ranks sent.
#pragma once

#include <cstddef>
#include <span>

#include "comm/communicator.h"
#include "core/link_collectives.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::comm::p2p {

inline constexpr int most_parts = link_collectives::most_ranks;

// out[i] = parts[0][i] + parts[1][i] + ..., in this order; or the largest of them, whatever is no number left out. Sums of bf16
// are taken in fp32 and rounded once. Each part has the elements of `out`; one of them may be `out` itself. Between 1 and
// most_parts of them.
void combine(StreamRef stream, View out, std::span<const std::byte* const> parts, Reduction reduction);

// The same by a kernel of the stream's device. CUDA streams only.
void combine_by_kernel(StreamRef stream, View out, std::span<const std::byte* const> parts, Reduction reduction);
// Loads all of its kernels to the current device.
void load_combining_kernels();

}  // namespace plait::comm::p2p
