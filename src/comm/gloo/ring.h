// Collective algorithms on host memory, all made of Peers::exchange. They block until this rank is done.
//
// Reductions and gathers go round a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 2009): each rank sends 2 (n - 1) / n of the data for any n. Every slice is summed by one chain of ranks
// in ring order and then copied, so all ranks hold the same bits, and every run gives the same bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/gloo/peers.h"
#include "core/dtype.h"

namespace plait::comm {

// `elements` cut into `parts` slices whose sizes differ by at most one.
struct Slices {
  std::int64_t elements = 0;
  int parts = 1;
  std::size_t element_bytes = 1;

  std::int64_t begin(int part) const { return elements / parts * part + std::min<std::int64_t>(part, elements % parts); }
  std::int64_t count(int part) const { return begin(part + 1) - begin(part); }
  std::size_t offset_bytes(int part) const { return static_cast<std::size_t>(begin(part)) * element_bytes; }
  std::size_t bytes(int part) const { return static_cast<std::size_t>(count(part)) * element_bytes; }
};

// `out` receives slice rank() of the reduction over ranks of `data`. `data` stays unchanged, except where `out` is its slice.
// `scratch` grows to two slices and is worth keeping between calls.
void ring_reduce_scatter(Peers& peers, const CallId& call, const std::byte* data, const Slices& slices, DType dtype,
                         Reduction reduction, std::byte* out, std::vector<std::byte>& scratch);

// Fills `data` with every rank's slice; this rank's own is already there.
void ring_all_gather(Peers& peers, const CallId& call, std::byte* data, const Slices& slices);

// Slice i of `send` goes to rank i, slice j of `receive` comes from rank j, one pair of peers after the other.
void pairwise_all_to_all(Peers& peers, const CallId& call, const std::byte* send, std::byte* receive, std::size_t slice_bytes);

}  // namespace plait::comm
