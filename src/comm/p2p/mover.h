// Copies between memories that one device can address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/link_collectives.h"
#include "core/stream.h"

namespace plait::comm::p2p {

// A kernel of the stream's device copies `bytes`; `to` and `from` do not overlap and may be a peer's memory. Uses `ctas` thread
// blocks: 16 fill an NVLink on an H200. Any alignment; both at 16 bytes is fast. CUDA streams only.
void copy_by_kernel(StreamRef stream, void* to, const void* from, std::size_t bytes, int ctas = 16);

// The same by one thread block, which then sets a counter as StreamRef::write_value does: for short messages, where starting
// another operation for the counter takes longer than the copy.
constexpr std::size_t longest_copy_with_counter = std::size_t{64} << 10;
void copy_and_count_by_kernel(StreamRef stream, void* to, const void* from, std::size_t bytes, std::uint32_t* counter,
                              std::uint32_t value);

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};
inline constexpr int most_copies = link_collectives::most_ranks;

// Several copies within one device that do not overlap: on a GPU one kernel, as each would have to wait until other kernels
// leave it an SM. At most most_copies; of any alignment, all at 16 bytes is fast.
void copy_all(StreamRef stream, std::span<const Copy> copies);
void copy_all_by_kernel(StreamRef stream, std::span<const Copy> copies);  // CUDA streams only
// Loads its kernels to the current device.
void load_copying_kernels();

}  // namespace plait::comm::p2p
