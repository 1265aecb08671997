// Cross-entropy kernels that read each row from device memory once and write it once. In between the row lives in shared
// memory: of one thread block where two rows fit on a multiprocessor, so that one loads and stores while the other computes;
// else spread over a cluster of as few blocks as possible. The blocks of a cluster exchange their maximum and their sum of
// exponentials through distributed shared memory. A kernel that reads the row three times handles rows that are not aligned to
// 16 bytes, rows longer than eight blocks hold and, on devices without clusters, rows longer than one block holds.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <algorithm>

#include "ops/cuda/cross_entropy.cuh"
#include "ops/cuda/launch.h"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

template <typename T>
struct Arguments {
  T* logits;
  const int* targets;
  float* losses;
  int vocab, padded_vocab;
  float scale;
  bool write_gradient;
};

constexpr int most_cluster = 8;  // the largest portable cluster

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, 5 * row_threads / Threads)
    resident_cross_entropy_kernel(Arguments<T> args, int slice) {
  await_previous_kernel();
  let_next_kernel_begin();
  constexpr int width = pack_width<T>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* row = reinterpret_cast<T*>(shared_bytes);  // this block's slice; a thread touches only packs it loaded itself
  __shared__ Softmax warp_results[Threads / warp_lanes];
  __shared__ Softmax block_results[most_cluster];

#if __CUDA_ARCH__ >= 900
  auto cluster = cooperative_groups::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks()), rank = static_cast<int>(cluster.block_rank());
  if (blocks > 1) cluster.barrier_arrive();  // with the wait below: no block writes into one that has not started
#else
  const int blocks = 1, rank = 0;
#endif
  const std::int64_t row_index = blockIdx.x / blocks;
  const int target = args.targets[row_index];
  T* logits = args.logits + row_index * args.padded_vocab;
  const int begin = rank * slice, end = min(begin + slice, args.padded_vocab), length = end - begin;
  const int thread_first = static_cast<int>(threadIdx.x) * width;
  constexpr int stride = Threads * width;

  for (int i = thread_first; i < length; i += stride) __pipeline_memcpy_async(row + i, logits + begin + i, 16);
  __pipeline_commit();
  // Read before the barriers below, hence before any block overwrites the row.
  const float target_logit = rank == 0 && threadIdx.x == 0 && target >= 0 ? to_float(logits[target]) : 0.0f;
  __pipeline_wait_prior(0);

  Softmax softmax = block_merge<T>(thread_softmax<T, width, Threads>(row, length, begin, args.vocab), warp_results);
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) {
    cluster.barrier_wait();
    if (static_cast<int>(threadIdx.x) < blocks)
      *cluster.map_shared_rank(&block_results[rank], static_cast<int>(threadIdx.x)) = softmax;
    cluster.sync();
    softmax = block_results[0];
    for (int other = 1; other < blocks; ++other) softmax = merge<T>(softmax, block_results[other]);
  }
#else
  static_cast<void>(block_results);
#endif
  if (rank == 0 && threadIdx.x == 0)
    args.losses[row_index] = target < 0 ? 0.0f : logf(softmax.sum) + softmax.maximum - target_logit;
  if (!args.write_gradient) return;
  if (target < 0) {  // its logits do not matter, not even NaN
    for (int i = thread_first; i < length; i += stride) store_pack(logits + begin + i, Pack<T, width>{});
    return;
  }
  const float scale = args.scale, factor = scale / softmax.sum;
#pragma unroll 2
  for (int i = thread_first; i < length; i += stride) {
    Pack<T, width> pack = load_pack<width>(row + i);
    mask_padding(pack, begin + i, args.vocab);
    store_pack(logits + begin + i, gradient<T, width>(pack, begin + i, softmax.maximum, factor, scale, target));
  }
}

constexpr int streaming_threads = 1024;

template <typename T>
__global__ void __launch_bounds__(streaming_threads) streaming_cross_entropy_kernel(Arguments<T> args) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[streaming_threads / warp_lanes];
  const std::int64_t row_index = blockIdx.x;
  const int target = args.targets[row_index];
  T* logits = args.logits + row_index * args.padded_vocab;
  const int thread = static_cast<int>(threadIdx.x);
  if (target < 0) {
    if (args.write_gradient) {
      for (int i = thread; i < args.padded_vocab; i += streaming_threads) logits[i] = from_float<T>(0.0f);
    }
    if (thread == 0) args.losses[row_index] = 0.0f;
    return;
  }
  const float target_logit = to_float(logits[target]);
  float maximum = -INFINITY;
  for (int i = thread; i < args.vocab; i += streaming_threads) maximum = fmaxf(maximum, to_float(logits[i]));
  maximum = block_max(maximum, shared);
  float sum = 0.0f;
  for (int i = thread; i < args.vocab; i += streaming_threads) sum += shifted_exponential<T>(to_float(logits[i]), maximum);
  sum = block_sum(sum, shared);
  if (thread == 0) args.losses[row_index] = logf(sum) + maximum - target_logit;
  if (!args.write_gradient) return;
  const float factor = args.scale / sum;
  for (int i = thread; i < args.padded_vocab; i += streaming_threads) {
    store_pack(logits + i, i < args.vocab ? gradient<T, 1>(load_pack<1>(logits + i), i, maximum, factor, args.scale, target)
                                          : Pack<T, 1>{});
  }
}

// The spread of a row: blocks per row and elements per block; blocks == 0 where none fits.
struct Spread {
  int blocks = 0, slice = 0;
};

template <typename T>
Spread choose_spread(Device device, std::int64_t padded_vocab) {
  int of_multiprocessor = 0;
  check(cudaDeviceGetAttribute(&of_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device.index));
  // The kernel's static shared memory, generously, plus CUDA's share of each block.
  constexpr std::int64_t reserved_bytes = 2048;
  // Clusters of blocks need compute capability 9.0, as kernel waiting does.
  const auto* const kernel = reinterpret_cast<const void*>(&resident_cross_entropy_kernel<T, row_threads>);
  const int most_blocks = kernels_wait(kernel, device) ? most_cluster : 1;
  Spread spread;
  for (int blocks = 1; blocks <= most_blocks; blocks *= 2) {
    const std::int64_t slice = round_up(ceil_div(padded_vocab, blocks), pack_width<T>);
    const std::int64_t bytes = slice * static_cast<std::int64_t>(sizeof(T));
    if (bytes <= most_shared_bytes(device) - reserved_bytes) spread = {blocks, static_cast<int>(slice)};
    if (2 * (bytes + reserved_bytes) <= of_multiprocessor) break;
  }
  return spread;
}

template <typename T, int Threads>
void launch_resident(StreamRef stream, const Arguments<T>& args, std::int64_t rows, Spread spread) {
  const std::size_t bytes = static_cast<std::size_t>(spread.slice) * sizeof(T);
  check(cudaFuncSetAttribute(resident_cross_entropy_kernel<T, Threads>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)));
  launch(stream, {grid_size(rows * spread.blocks), Threads, bytes, static_cast<unsigned>(spread.blocks)},
         resident_cross_entropy_kernel<T, Threads>, args, spread.slice);
}

}  // namespace

void cross_entropy(StreamRef stream, const CrossEntropy& args) {
  const std::int64_t rows = args.logits.shape[0], padded_vocab = args.logits.shape[1];
  if (rows == 0) return;
  with_type(args.logits.dtype, [&](auto t) {
    using T = decltype(t);
    const Arguments<T> arguments{device_pointer<T>(args.logits),
                                 device_pointer<int>(args.targets),
                                 device_pointer<float>(args.losses),
                                 static_cast<int>(args.vocab),
                                 static_cast<int>(padded_vocab),
                                 args.scale,
                                 args.write_gradient};
    const bool vectorised = padded_vocab % pack_width<T> == 0 && aligned_16({args.logits.data});
    const Spread spread = vectorised ? choose_spread<T>(stream.device(), padded_vocab) : Spread{};
    constexpr int few_threads = 64;  // short rows need no more
    if (spread.blocks == 1 && spread.slice <= few_threads * packs_per_step * pack_width<T>) {
      launch_resident<T, few_threads>(stream, arguments, rows, spread);
    } else if (spread.blocks > 0) {
      launch_resident<T, row_threads>(stream, arguments, rows, spread);
    } else {
      launch(stream, {grid_size(rows), streaming_threads}, streaming_cross_entropy_kernel<T>, arguments);
    }
  });
}

}  // namespace plait::ops::cuda
