// What the memory plan and the planner have to know of collectives by links (comm/p2p/link_communicator.h), which they do not
// see.
#pragma once

#include <cstddef>

namespace plait::link_collectives {

// Ranks of a group, whose parts one kernel adds up: more than NVLink connects today.
inline constexpr int most_ranks = 72;
// Of a group that takes links by itself: more was not measured (docs/overlap.md).
inline constexpr int most_ranks_by_itself = 4;
// Of what a rank pushes at once for a reduction of gradients: an NVLink is at full speed long before, and twice as much for
// each other rank waits in memory.
inline constexpr std::size_t most_reduced_at_once = std::size_t{32} << 20;
// A sum of so little is made by every rank from what all others send it: one step in place of two, and the same bits.
inline constexpr std::size_t most_reduced_by_all = std::size_t{64} << 10;
// Pushes of so many bytes to each other rank always go by one kernel (between GPUs that reach each other's memory), as single
// messages by kernels do by one block. Longer ones go by copy engines, which take no SM from compute; but an engine takes 11 us
// to begin and 7 for every further rank (4 × H200), the kernel 5 for all of them. So it pays among three ranks and more, where
// little is computed meanwhile: up to so many FLOPs of products of 16 bits, or twice as many of FP8 (docs/p2p.md, "Who
// pushes").
inline constexpr std::size_t longest_short_push = std::size_t{64} << 10;
inline constexpr int fewest_ranks_by_kernel = 3;
inline constexpr double most_flops_beside_kernel = 68e9;
// An exchange in a braid has two halves of blocks beside it; where nobody knows more, that is what is assumed.
inline constexpr int quarters_beside_in_braid = 4;
// A sum of so little among so few is one kernel for all of it.
inline constexpr std::size_t most_summed_by_one_kernel = std::size_t{4} << 10;
inline constexpr int most_ranks_by_one_kernel = 8;
// Where messages land, for each rank that sends some: one may travel while the other is used.
inline constexpr int places = 2;
// Of slices, in bytes, so that kernels read and write 16 at once.
inline constexpr std::size_t alignment = 16;

constexpr std::size_t rounded_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
// What a place for such a slice takes: each begins at a multiple of 256 bytes, as all device memory does
// (comm/p2p/mailbox_memory.cpp).
constexpr std::size_t bytes_of_place(std::size_t slice) { return (slice + 255) / 256 * 256; }

}  // namespace plait::link_collectives
