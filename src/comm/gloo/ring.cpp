#include "comm/gloo/ring.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/reduction.h"

namespace plait::comm {
namespace {

int wrap(int rank, int size) { return (rank % size + size) % size; }

}  // namespace

void ring_reduce_scatter(Peers& peers, const CallId& call, const std::byte* data, const Slices& slices, DType dtype,
                         Reduction reduction, std::byte* out, std::vector<std::byte>& scratch) {
  const int size = peers.size();
  const int rank = peers.rank();
  const int right = wrap(rank + 1, size);
  const int left = wrap(rank - 1, size);
  const std::size_t largest = slices.bytes(0);
  if (scratch.size() < 2 * largest) scratch.resize(2 * largest);
  const std::array<std::byte*, 2> partial = {scratch.data(), scratch.data() + largest};

  // The partial sum of a slice starts at the rank after its owner and ends at its owner.
  const std::byte* outgoing = data + slices.offset_bytes(left);
  for (int step = 0; step < size - 1; ++step) {
    const int sent = wrap(rank - step - 1, size);
    const int received = wrap(rank - step - 2, size);
    std::byte* incoming = partial[static_cast<std::size_t>(step % 2)];
    peers.exchange(call, right, outgoing, slices.bytes(sent), left, incoming, slices.bytes(received));
    std::byte* sum = received == rank ? out : incoming;
    reduce_elements(dtype, reduction, sum, incoming, data + slices.offset_bytes(received), slices.count(received));
    outgoing = incoming;
  }
}

void ring_all_gather(Peers& peers, const CallId& call, std::byte* data, const Slices& slices) {
  const int size = peers.size();
  const int rank = peers.rank();
  for (int step = 0; step < size - 1; ++step) {
    const int sent = wrap(rank - step, size);
    const int received = wrap(rank - step - 1, size);
    peers.exchange(call, wrap(rank + 1, size), data + slices.offset_bytes(sent), slices.bytes(sent), wrap(rank - 1, size),
                   data + slices.offset_bytes(received), slices.bytes(received));
  }
}

void pairwise_all_to_all(Peers& peers, const CallId& call, const std::byte* send, std::byte* receive, std::size_t slice_bytes) {
  const int size = peers.size();
  const int rank = peers.rank();
  const auto slice = [&](int of_rank) { return static_cast<std::size_t>(of_rank) * slice_bytes; };
  if (slice_bytes > 0) std::memcpy(receive + slice(rank), send + slice(rank), slice_bytes);
  for (int distance = 1; distance < size; ++distance) {
    const int to = wrap(rank + distance, size);
    const int from = wrap(rank - distance, size);
    peers.exchange(call, to, send + slice(to), slice_bytes, from, receive + slice(from), slice_bytes);
  }
}

}  // namespace plait::comm
