// Collectives as data: the operation of a group of ranks, and its purpose.
#pragma once

#include <cstddef>

#include "core/names.h"

namespace plait {

// `reduce_scatter` leaves each rank its own share of the sum, in its place in the tensor; `all_gather` brings every rank the
// shares of the others.
enum class Operation { sum, max, reduce_scatter, all_gather, barrier };
template <>
inline constexpr auto names<Operation> = std::to_array<Name<Operation>>({{Operation::sum, "sum"},
                                                                         {Operation::max, "max"},
                                                                         {Operation::reduce_scatter, "reduce_scatter"},
                                                                         {Operation::all_gather, "all_gather"},
                                                                         {Operation::barrier, "barrier"}});

// The purpose determines a collective's stream and its line in the ledger.
enum class Purpose { activations, weights, gradients, scalars };
template <>
inline constexpr auto names<Purpose> = std::to_array<Name<Purpose>>({{Purpose::activations, "activations"},
                                                                     {Purpose::weights, "weights"},
                                                                     {Purpose::gradients, "gradients"},
                                                                     {Purpose::scalars, "scalars"}});

}  // namespace plait

namespace plait::link_collectives {

// The facts about collectives by links (comm/p2p/link_communicator.h) that the memory plan and the planner need, without seeing
// them.

// The largest group whose parts one kernel adds up: more than NVLink connects today.
inline constexpr int most_ranks = 72;
// The largest group that uses links by default: more was not measured (docs/overlap.md).
inline constexpr int most_ranks_by_itself = 4;
// The most bytes that a rank pushes at once for a reduction of gradients: an NVLink is at full speed long before, and twice as
// much for each other rank waits in memory.
inline constexpr std::size_t most_reduced_at_once = std::size_t{32} << 20;
// Up to this size every rank makes the sum itself from the others' contributions: one step instead of two, with the same bits.
inline constexpr std::size_t most_reduced_by_all = std::size_t{64} << 10;
// Pushes of up to this many bytes to each other rank always use one kernel (between GPUs that reach each other's memory), and
// single messages by kernels use one block. Longer ones use copy engines, which take no SM from compute; but an engine takes 11
// us to begin and 7 for every further rank (4 × H200), the kernel 5 for all of them. So the kernel pays among three ranks and
// more where little is computed meanwhile: up to a number of FLOPs of 16-bit products, or twice as many of FP8 (docs/p2p.md,
// "Who pushes").
inline constexpr std::size_t longest_short_push = std::size_t{64} << 10;
inline constexpr int fewest_ranks_by_kernel = 3;
inline constexpr double most_flops_beside_kernel = 68e9;
// The assumed number of quarters of blocks that run during an exchange in a braid, if nothing more is known: two halves.
inline constexpr int quarters_beside_in_braid = 4;
// A sum this short among this few ranks is one kernel altogether.
inline constexpr std::size_t most_summed_by_one_kernel = std::size_t{4} << 10;
inline constexpr int most_ranks_by_one_kernel = 8;
// Places where messages land, for each sending rank: one message may travel while the other is used.
inline constexpr int places = 2;
// Alignment of slices in bytes, so that kernels read and write 16 at once.
inline constexpr std::size_t alignment = 16;

constexpr std::size_t rounded_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
// Bytes of a place for a slice: each begins at a multiple of 256 bytes, as all device memory does
// (comm/p2p/mailbox.cpp).
constexpr std::size_t bytes_of_place(std::size_t slice) { return (slice + 255) / 256 * 256; }

}  // namespace plait::link_collectives
