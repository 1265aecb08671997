#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "comm/p2p/cuda/counters.h"
#include "comm/p2p/mover.h"
#include "core/cuda_check.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

constexpr int threads = 512;
constexpr int unroll = 4;  // loads in flight per thread: an NVLink's latency is long
constexpr std::size_t most_blocks =
    264;  // of all copies together: enough for an H200's memory, and other kernels get their turn

// Blocks per copy.
std::size_t most_blocks_of(std::size_t copies) { return std::max<std::size_t>(1, most_blocks / copies); }

// Copies `words`, then the remaining bytes before the first word (`head`) and after the last, fewer than a word each. It needs
// no fence: the stream announces the copy to a peer afterwards, and that orders it.
template <typename Word>
__device__ void copy_part(std::byte* to, const std::byte* from, unsigned head, std::size_t words, unsigned tail) {
  auto* const to_words = reinterpret_cast<Word*>(to + head);
  const auto* const from_words = reinterpret_cast<const Word*>(from + head);
  const std::size_t first = blockIdx.x * std::size_t{threads} + threadIdx.x;
  const std::size_t step = gridDim.x * std::size_t{threads};
  std::size_t i = first;
  for (; i + (unroll - 1) * step < words; i += unroll * step) {
    Word loaded[unroll];
#pragma unroll
    for (int k = 0; k < unroll; ++k) loaded[k] = from_words[i + k * step];
#pragma unroll
    for (int k = 0; k < unroll; ++k) to_words[i + k * step] = loaded[k];
  }
  for (; i < words; i += step) to_words[i] = from_words[i];
  if (first < head) to[first] = from[first];
  if (first < tail) {
    const std::size_t offset = head + words * sizeof(Word) + first;
    to[offset] = from[offset];
  }
}

template <typename Word>
__global__ void __launch_bounds__(threads) copy_words(std::byte* __restrict__ to, const std::byte* __restrict__ from,
                                                      unsigned head, std::size_t words, unsigned tail) {
  copy_part<Word>(to, from, head, words, tail);
}

// The parts of a copy between two addresses that agree in their lower bits: `head` bytes before the first word, words, and the
// rest.
template <typename Word>
struct Split {
  __host__ __device__ Split(const void* to, std::size_t bytes) {
    const std::size_t before = (sizeof(Word) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Word)) % sizeof(Word);
    head = static_cast<unsigned>(before < bytes ? before : bytes);
    words = (bytes - head) / sizeof(Word);
    tail = static_cast<unsigned>(bytes - head - words * sizeof(Word));
  }
  unsigned head, tail;
  std::size_t words;
};

struct Copies {
  std::byte* to[most_copies];
  const std::byte* from[most_copies];
  std::size_t bytes[most_copies];
};

// One row of blocks per copy.
template <typename Word>
__global__ void __launch_bounds__(threads) copy_several(Copies copies) {
  std::byte* const to = copies.to[blockIdx.y];
  const Split<Word> split(to, copies.bytes[blockIdx.y]);
  copy_part<Word>(to, copies.from[blockIdx.y], split.head, split.words, split.tail);
}

// Usually there are few. Keep the kernel arguments small; launch time grows with them.
constexpr int few_copies = 8;
template <int most>
struct CountedCopies {
  CountedCopy list[most];
};

// One row of blocks per copy; the last block to end sets the counter, after the words of all are on their way. No __restrict__:
// the compiler must not read data that others write before the wait in front of it.
template <typename Word, int most>
__global__ void __launch_bounds__(threads)
    copy_several_between_counters(CountedCopies<most> copies, std::uint32_t* blocks_done) {
  const CountedCopy& c = copies.list[blockIdx.y];
  if (threadIdx.x == 0) {
    if (c.freed.counter && blockIdx.x == 0) set(c.freed);
    if (c.awaited.counter) wait_for(c.awaited);
  }
  __syncthreads();
  auto* const to = static_cast<std::byte*>(c.copy.to);
  const Split<Word> split(to, c.copy.bytes);
  copy_part<Word>(to, static_cast<const std::byte*>(c.copy.from), split.head, split.words, split.tail);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x > 0) return;
  if (gridDim.x > 1) {
    if (atomicInc(&blocks_done[blockIdx.y], gridDim.x - 1) + 1 < gridDim.x) return;  // the last one leaves 0
    __threadfence_system();
  }
  set(c.counter);
}

template <typename Word>
void launch(cudaStream_t stream, std::byte* to, const std::byte* from, std::size_t bytes, int ctas) {
  const Split<Word> split(to, bytes);
  const std::size_t useful = std::max<std::size_t>(1, (split.words + threads - 1) / threads);
  const auto blocks = static_cast<unsigned>(std::min(useful, static_cast<std::size_t>(ctas)));
  copy_words<Word><<<blocks, threads, 0, stream>>>(to, from, split.head, split.words, split.tail);
  check(cudaGetLastError());
}

// True if the addresses agree in their lower bits, so that words of this size may be copied between them.
bool agree(const void* to, const void* from, std::size_t word) {
  return (reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from)) % word == 0;
}

template <typename Word>
void launch_several(StreamRef stream, std::span<const Copy> copies) {
  Copies list{};
  unsigned count = 0;
  std::size_t largest = 0;
  for (const Copy& copy : copies) {
    if (copy.bytes == 0) continue;
    list.to[count] = static_cast<std::byte*>(copy.to);
    list.from[count] = static_cast<const std::byte*>(copy.from);
    list.bytes[count++] = copy.bytes;
    largest = std::max(largest, copy.bytes);
  }
  if (count == 0) return;
  const std::size_t useful = (largest / sizeof(Word) + threads - 1) / threads;
  const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(useful, 1, most_blocks_of(count)));
  copy_several<Word><<<dim3(blocks, count), threads, 0, static_cast<cudaStream_t>(stream.native())>>>(list);
  check(cudaGetLastError());
}

template <typename Word>
void load_kernels() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, copy_words<Word>));
  check(cudaFuncGetAttributes(&attributes, copy_several<Word>));
  check(cudaFuncGetAttributes(&attributes, copy_several_between_counters<Word, few_copies>));
  check(cudaFuncGetAttributes(&attributes, copy_several_between_counters<Word, most_copies>));
}

// Calls f(word) for the widest word in which the addresses of all copies agree.
template <typename Copied, typename F>
void with_word(std::span<const Copied> copies, const F& f) {
  const auto copy_of = [](const Copied& c) -> const Copy& {
    if constexpr (std::is_same_v<Copied, Copy>)
      return c;
    else
      return c.copy;
  };
  const auto all_agree = [&](std::size_t word) {
    return std::ranges::all_of(copies, [&](const Copied& c) { return agree(copy_of(c).to, copy_of(c).from, word); });
  };
  if (all_agree(sizeof(uint4))) return f(uint4{});
  if (all_agree(sizeof(std::uint32_t))) return f(std::uint32_t{});
  f(static_cast<unsigned char>(0));
}

}  // namespace

void copy_by_kernel(StreamRef stream, void* to, const void* from, std::size_t bytes, int ctas) {
  require(stream.device().is_cuda(), "copies by kernel need a stream of a GPU");
  require(ctas > 0, "copy_by_kernel needs at least one thread block");
  if (bytes == 0) return;
  const Copy copy{to, from, bytes};
  with_word(std::span(&copy, 1), [&](auto word) {
    launch<decltype(word)>(static_cast<cudaStream_t>(stream.native()), static_cast<std::byte*>(to),
                           static_cast<const std::byte*>(from), bytes, ctas);
  });
}

// The same by operations of the stream around a kernel that does not wait.
static void copy_between_operations(StreamRef stream, std::span<const CountedCopy> copies) {
  using enum CounterOperation::Kind;
  std::vector<CounterOperation> before, after;
  std::vector<Copy> list;
  for (const CountedCopy& c : copies) {
    if (c.freed.counter) before.push_back({write, c.freed.counter, c.freed.value});
    list.push_back(c.copy);
    after.push_back({write, c.counter.counter, c.counter.value});
  }
  for (const CountedCopy& c : copies) {
    if (c.awaited.counter) before.push_back({wait, c.awaited.counter, c.awaited.value});
  }
  if (!before.empty()) stream.count(before);
  copy_all_by_kernel(stream, list);
  stream.count(after);
}

void copy_between_counters(StreamRef stream, std::span<const CountedCopy> copies, int blocks, std::uint32_t* blocks_done) {
  require(stream.device().is_cuda(), "copies by kernel need a stream of a GPU");
  require(copies.size() <= most_copies, "copy_between_counters: too many copies");
  require(blocks == 1 || (blocks > 1 && blocks_done), "copy_between_counters: more than one block needs counters");
  if (copies.empty()) return;
  for (const CountedCopy& copy : copies) require(copy.counter.counter, "copy_between_counters needs a counter");
  if (stream.device().shared) return copy_between_operations(stream, copies);
  // Waiting blocks must not keep others from running.
  const std::size_t of_each = std::min(static_cast<std::size_t>(blocks), most_blocks_of(copies.size()));
  const dim3 grid(static_cast<unsigned>(of_each), static_cast<unsigned>(copies.size()));
  auto* const native = static_cast<cudaStream_t>(stream.native());
  const auto launch = [&]<int most>(std::integral_constant<int, most>) {
    CountedCopies<most> list{};
    std::ranges::copy(copies, list.list);
    with_word(copies, [&](auto word) {
      copy_several_between_counters<decltype(word), most><<<grid, threads, 0, native>>>(list, blocks_done);
    });
  };
  if (copies.size() <= few_copies) {
    launch(std::integral_constant<int, few_copies>());
  } else {
    launch(std::integral_constant<int, most_copies>());
  }
  check(cudaGetLastError());
}

void copy_all_by_kernel(StreamRef stream, std::span<const Copy> copies) {
  with_word(copies, [&](auto word) { launch_several<decltype(word)>(stream, copies); });
}

void load_copying_kernels() {
  load_kernels<uint4>();
  load_kernels<std::uint32_t>();
  load_kernels<unsigned char>();
}

}  // namespace plait::comm::p2p
