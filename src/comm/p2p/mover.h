// Copies and sums between memories that one device can address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "core/collective.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::comm::p2p {

// A kernel of the stream's device copies `bytes`; `to` and `from` do not overlap and may be a peer's memory. Uses `ctas` thread
// blocks: 16 fill an NVLink on an H200. Any alignment; both at 16 bytes is fast. CUDA streams only.
void copy_by_kernel(StreamRef stream, void* to, const void* from, std::size_t bytes, int ctas = 16);

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};
inline constexpr int most_copies = link_collectives::most_ranks;

// Copies between counters, many at once by one kernel: for each it sets `freed`, waits for `awaited`, copies, and sets
// `counter`, as wait_value and write_value of StreamRef do. It serves where starting an operation for each counter and each
// copy takes longer than the copy. While it waits it occupies a part of as many multiprocessors as it has thread blocks, as
// kernels of NCCL do. Without an awaited counter it begins at once. At most most_copies. `blocks`: per copy, fewer if there are
// many; more than one need `blocks_done`, most_copies counters on the device that are 0 before and after, used by this stream
// alone. On a shared GPU (Device::shared) operations of the stream wait and write, and the kernel only copies.
struct CounterValue {
  std::uint32_t* counter = nullptr;
  std::uint32_t value = 0;
};
struct CountedCopy {
  CounterValue awaited;
  Copy copy;
  CounterValue counter;
  CounterValue freed = {};
};
void copy_between_counters(StreamRef stream, std::span<const CountedCopy> copies, int blocks = 1,
                           std::uint32_t* blocks_done = nullptr);

// Makes non-overlapping copies within one device: on a GPU by one kernel, since each copy alone would have to wait until other
// kernels leave it an SM. At most most_copies, with any alignment; 16 bytes is fast.
void copy_all(StreamRef stream, std::span<const Copy> copies);
void copy_all_by_kernel(StreamRef stream, std::span<const Copy> copies);  // CUDA streams only
// Loads the kernels of copy_all and copy_between_counters to the current device: once one of them waits, loading can take until
// the device is idle.
void load_copying_kernels();

// Operations of a stream on the counters of many mailboxes at once: one call of the driver, because a call for each would take
// more host time than the exchange of a segment leaves.
class CounterBatch {
 public:
  void write(std::uint32_t* counter, std::uint32_t value);
  // Later work runs once the counter has reached `value`. After a released wait the memory may be in any state (the other end
  // may be using it), so a host stream fails there, and with it all work that would use the missing data.
  void wait(const std::uint32_t* counter, std::uint32_t value, const std::shared_ptr<std::atomic<bool>>& released);
  // Enqueues all in the order in which they were added, and empties the batch.
  void enqueue(StreamRef stream);
  // The last operation, for a kernel that does the same; null if there are none. It replaces the others if all of them write
  // one counter.
  CounterValue last() const;
  void append(const CounterBatch& other);

 private:
  std::vector<CounterOperation> operations_;
  std::vector<std::shared_ptr<std::atomic<bool>>> released_;
};

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
