#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "comm/p2p/mover.h"
#include "core/cuda_check.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

constexpr int threads = 512;
constexpr int unroll = 4;  // loads in flight per thread: an NVLink's latency is long

// Copies `words`; then the bytes that are left before the first word (`head`) and after the last, fewer than a word each.
// No fence: what tells a peer of the copy is written by the stream afterwards, and that orders it.
template <typename Word>
__device__ void copy_part(std::byte* __restrict__ to, const std::byte* __restrict__ from, unsigned head, std::size_t words,
                          unsigned tail) {
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

// One block. Each thread's words are on their way to everybody before the counter is.
template <typename Word>
__global__ void __launch_bounds__(threads)
    copy_words_and_count(std::byte* __restrict__ to, const std::byte* __restrict__ from, unsigned head, std::size_t words,
                         unsigned tail, std::uint32_t* counter, std::uint32_t value) {
  copy_part<Word>(to, from, head, words, tail);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *const_cast<volatile std::uint32_t*>(counter) = value;
}

struct Copies {
  std::byte* to[most_copies];
  const std::byte* from[most_copies];
  std::size_t bytes[most_copies];
};

// One row of blocks each.
template <typename Word>
__global__ void __launch_bounds__(threads) copy_several(Copies copies) {
  std::byte* const to = copies.to[blockIdx.y];
  const std::size_t bytes = copies.bytes[blockIdx.y];
  const std::size_t before = (sizeof(Word) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Word)) % sizeof(Word);
  const std::size_t head = before < bytes ? before : bytes, words = (bytes - head) / sizeof(Word);
  copy_part<Word>(to, copies.from[blockIdx.y], static_cast<unsigned>(head), words,
                  static_cast<unsigned>(bytes - head - words * sizeof(Word)));
}

struct Counting {
  std::uint32_t* counter = nullptr;  // none: only the copy
  std::uint32_t value = 0;
};

template <typename Word>
void launch(cudaStream_t stream, std::byte* to, const std::byte* from, std::size_t bytes, int ctas, Counting counting) {
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  const std::size_t head = std::min(bytes, (sizeof(Word) - address % sizeof(Word)) % sizeof(Word));
  const std::size_t words = (bytes - head) / sizeof(Word);
  const std::size_t tail = bytes - head - words * sizeof(Word);
  const std::size_t useful = std::max<std::size_t>(1, (words + threads - 1) / threads);
  const auto blocks = static_cast<unsigned>(std::min(useful, static_cast<std::size_t>(ctas)));
  if (counting.counter) {
    copy_words_and_count<Word><<<1, threads, 0, stream>>>(to, from, static_cast<unsigned>(head), words,
                                                          static_cast<unsigned>(tail), counting.counter, counting.value);
  } else {
    copy_words<Word><<<blocks, threads, 0, stream>>>(to, from, static_cast<unsigned>(head), words, static_cast<unsigned>(tail));
  }
  check(cudaGetLastError());
}

// In their lower bits, so that words of this size may be copied between them.
bool agree(const void* to, const void* from, std::size_t word) {
  return (reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from)) % word == 0;
}

template <typename Word>
void launch_several(StreamRef stream, std::span<const Copy> copies) {
  constexpr std::size_t most_blocks = 264;  // of all copies: enough for an H200's memory, and others get their turn
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
  const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(useful, 1, std::max<std::size_t>(1, most_blocks / count)));
  copy_several<Word><<<dim3(blocks, count), threads, 0, static_cast<cudaStream_t>(stream.native())>>>(list);
  check(cudaGetLastError());
}

template <typename Word>
void load_copy_several() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, copy_several<Word>));
}

// Words as wide as the two addresses agree in their lower bits.
void copy(StreamRef stream, void* to, const void* from, std::size_t bytes, int ctas, Counting counting) {
  require(stream.device().is_cuda(), "copies by kernel need a stream of a GPU");
  auto* const native = static_cast<cudaStream_t>(stream.native());
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  if (agree(to, from, sizeof(uint4))) {
    launch<uint4>(native, target, source, bytes, ctas, counting);
  } else if (agree(to, from, sizeof(std::uint32_t))) {
    launch<std::uint32_t>(native, target, source, bytes, ctas, counting);
  } else {
    launch<unsigned char>(native, target, source, bytes, ctas, counting);
  }
}

}  // namespace

void copy_by_kernel(StreamRef stream, void* to, const void* from, std::size_t bytes, int ctas) {
  require(ctas > 0, "copy_by_kernel needs at least one thread block");
  if (bytes > 0) copy(stream, to, from, bytes, ctas, {});
}

void copy_and_count_by_kernel(StreamRef stream, void* to, const void* from, std::size_t bytes, std::uint32_t* counter,
                              std::uint32_t value) {
  require(counter != nullptr, "copy_and_count_by_kernel needs a counter");
  copy(stream, to, from, bytes, 1, {counter, value});
}

void copy_all_by_kernel(StreamRef stream, std::span<const Copy> copies) {
  const auto all_agree = [&](std::size_t word) {
    return std::ranges::all_of(copies, [word](const Copy& copy) { return agree(copy.to, copy.from, word); });
  };
  if (all_agree(sizeof(uint4))) {
    launch_several<uint4>(stream, copies);
  } else if (all_agree(sizeof(std::uint32_t))) {
    launch_several<std::uint32_t>(stream, copies);
  } else {
    launch_several<unsigned char>(stream, copies);
  }
}

void load_copying_kernels() {
  load_copy_several<uint4>();
  load_copy_several<std::uint32_t>();
  load_copy_several<unsigned char>();
}

}  // namespace plait::comm::p2p
