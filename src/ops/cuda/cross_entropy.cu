// Each row is read from device memory once and written once. In between it lives in shared memory, spread over a cluster of
// thread blocks. Clusters stay resident and stride over the rows: while one row computes, the next is on its way into a second
// buffer. The blocks of a cluster exchange their maximum and their sum of exponentials through distributed shared
// memory. Rows that are not aligned to 16 bytes, or longer than eight blocks hold, or on devices without clusters longer than
// one block holds, take a kernel that reads the row three times.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"

namespace plait::ops::cuda {
namespace {

template <typename T> struct Arguments {
  T* logits;
  const int* targets;
  float* losses;
  int vocab, padded_vocab;
  float scale;
  bool write_gradient;
};

// exp(x - maximum). bf16 takes the hardware's exponential: its error of a few units in the last place of a float is far below
// the rounding of the result.
template <typename T> __device__ float shifted_exponential(float x, float maximum) {
  if constexpr (sizeof(T) == 2) {
    constexpr float log2_e = 1.4426950408889634f;
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(x, log2_e, -maximum * log2_e)));
    return power;
  }
  return expf(x - maximum);
}

// Maximum of a set of logits and the sum of exp(logit - maximum) over it; {-inf, 0} for the empty set.
struct Softmax {
  float maximum = -INFINITY, sum = 0.0f;
};

template <typename T> __device__ Softmax merge(Softmax a, Softmax b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  const float finite = maximum == -INFINITY ? 0.0f : maximum;  // -inf - -inf is no number
  return {maximum, a.sum * shifted_exponential<T>(a.maximum, finite) + b.sum * shifted_exponential<T>(b.maximum, finite)};
}

template <typename T> __device__ Softmax warp_merge(Softmax softmax) {
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) {
    softmax = merge<T>(softmax, {__shfl_xor_sync(full_warp, softmax.maximum, offset), __shfl_xor_sync(full_warp, softmax.sum, offset)});
  }
  return softmax;
}

__device__ inline float pack_max(const Pack<float, 4>& pack) {
  return fmaxf(fmaxf(pack.values[0], pack.values[1]), fmaxf(pack.values[2], pack.values[3]));
}
__device__ inline float pack_max(const Pack<__nv_bfloat16, 8>& pack) {
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(pack.values);
  const __nv_bfloat162 most = __hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3]));
  return fmaxf(__low2float(most), __high2float(most));
}

// The gradient of the logits from `column` on, where masked logits are -inf. `target` is the column of the target.
template <typename T, int Width>
__device__ Pack<T, Width> gradient(const Pack<T, Width>& logits, int column, float maximum, float factor, float scale, int target) {
  float values[Width];
  unpack(logits, values);
#pragma unroll
  for (int i = 0; i < Width; ++i) values[i] = shifted_exponential<T>(values[i], maximum) * factor;
  if (static_cast<unsigned>(target - column) < static_cast<unsigned>(Width)) {
#pragma unroll
    for (int i = 0; i < Width; ++i) values[i] -= column + i == target ? scale : 0.0f;
  }
  return make_pack<T>(values);
}

constexpr int resident_threads = 512;
constexpr int resident_blocks = 2;  // on a multiprocessor
constexpr int most_cluster = 8;     // the largest portable cluster
constexpr int packs_per_step = 4;

// Maximum and sum of exponentials of one thread's packs of `row`, which holds `length` logits from column `begin` on. Logits
// past the vocabulary become -inf.
template <typename T> __device__ Softmax thread_softmax(T* row, int begin, int length, int vocab) {
  constexpr int width = pack_width<T>;
  constexpr int stride = resident_threads * width;
  Softmax softmax;
  for (int first = static_cast<int>(threadIdx.x) * width; first < length; first += packs_per_step * stride) {
    Pack<T, width> packs[packs_per_step];
    float maximum = softmax.maximum;
#pragma unroll
    for (int k = 0; k < packs_per_step; ++k) {
      const int i = first + k * stride;
      if (i < length) {
        packs[k] = load_pack<width>(row + i);
        if (begin + i + width > vocab) {
#pragma unroll
          for (int j = 0; j < width; ++j) {
            if (begin + i + j >= vocab) packs[k].values[j] = from_float<T>(-INFINITY);
          }
          store_pack(row + i, packs[k]);
        }
        maximum = fmaxf(maximum, pack_max(packs[k]));
      }
    }
    if (maximum == -INFINITY) continue;
    float sum = softmax.sum * shifted_exponential<T>(softmax.maximum, maximum);
#pragma unroll
    for (int k = 0; k < packs_per_step; ++k) {
      if (first + k * stride < length) {
        float values[width];
        unpack(packs[k], values);
#pragma unroll
        for (int j = 0; j < width; ++j) values[j] = shifted_exponential<T>(values[j], maximum);
        sum += tree_sum(values);
      }
    }
    softmax = {maximum, sum};
  }
  return softmax;
}

template <typename T>
__global__ void __launch_bounds__(resident_threads, resident_blocks)
    resident_cross_entropy_kernel(Arguments<T> args, std::int64_t rows, int slice) {
  constexpr int width = pack_width<T>;
  constexpr int stride = resident_threads * width;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  // Two buffers of one slice each; a thread touches only packs it loaded itself.
  T* buffers = reinterpret_cast<T*>(shared_bytes);
  __shared__ Softmax warp_results[2][resident_threads / warp_lanes];
  __shared__ Softmax block_results[2][most_cluster];

#if __CUDA_ARCH__ >= 900
  auto cluster = cooperative_groups::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks()), rank = static_cast<int>(cluster.block_rank());
  if (blocks > 1) cluster.sync();  // no block writes into one that has not started
#else
  const int blocks = 1, rank = 0;
  static_cast<void>(block_results);
#endif
  const int begin = rank * slice, length = min(slice, args.padded_vocab - begin);
  const int thread_first = static_cast<int>(threadIdx.x) * width;
  const std::int64_t first_row = blockIdx.x / blocks, row_stride = gridDim.x / blocks;
  const auto fetch = [&](std::int64_t row_index, T* to) {
    if (row_index < rows) {
      const T* from = args.logits + row_index * args.padded_vocab + begin;
      for (int i = thread_first; i < length; i += stride) __pipeline_memcpy_async(to + i, from + i, 16);
    }
    __pipeline_commit();
  };

  int parity = 0;
  fetch(first_row, buffers);
  for (std::int64_t row_index = first_row; row_index < rows; row_index += row_stride) {
    T* row = buffers + parity * slice;
    T* logits = args.logits + row_index * args.padded_vocab;
    fetch(row_index + row_stride, buffers + (parity ^ 1) * slice);
    const int target = args.targets[row_index];
    // Read before the barriers below, hence before any block overwrites the row.
    const float target_logit = rank == 0 && threadIdx.x == 0 && target >= 0 ? to_float(logits[target]) : 0.0f;
    __pipeline_wait_prior(1);

    // Results alternate between two places, so that one barrier per exchange is enough.
    Softmax softmax = warp_merge<T>(thread_softmax(row, begin, length, args.vocab));
    if (threadIdx.x % warp_lanes == 0) warp_results[parity][threadIdx.x / warp_lanes] = softmax;
    __syncthreads();
    const int lane = threadIdx.x % warp_lanes;
    softmax = warp_merge<T>(lane < resident_threads / warp_lanes ? warp_results[parity][lane] : Softmax{});
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) {
      const int peer = static_cast<int>(threadIdx.x);
      if (peer < blocks) *cluster.map_shared_rank(&block_results[parity][rank], peer) = softmax;
      cluster.sync();
      softmax = block_results[parity][0];
      for (int other = 1; other < blocks; ++other) softmax = merge<T>(softmax, block_results[parity][other]);
    }
#endif
    if (rank == 0 && threadIdx.x == 0) args.losses[row_index] = target < 0 ? 0.0f : logf(softmax.sum) + softmax.maximum - target_logit;
    if (args.write_gradient) {
      const float scale = target < 0 ? 0.0f : args.scale, factor = scale / softmax.sum;
#pragma unroll 4
      for (int i = thread_first; i < length; i += stride) {
        store_pack(logits + begin + i, gradient<T, width>(load_pack<width>(row + i), begin + i, softmax.maximum, factor, scale, target));
      }
    }
    parity ^= 1;
  }
}

constexpr int streaming_threads = 1024;

template <typename T> __global__ void __launch_bounds__(streaming_threads) streaming_cross_entropy_kernel(Arguments<T> args) {
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
    store_pack(logits + i, i < args.vocab ? gradient<T, 1>(load_pack<1>(logits + i), i, maximum, factor, args.scale, target) : Pack<T, 1>{});
  }
}

// How a row is spread: blocks per row and elements per block; blocks == 0 where no such spread fits.
struct Spread {
  int blocks = 0, slice = 0;
};

template <typename T> Spread choose_spread(Device device, std::int64_t padded_vocab) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  constexpr std::int64_t reserved_bytes = 2048;  // static shared memory and what the system keeps of each block's, generously
  const int most_blocks = major >= 9 ? most_cluster : 1;
  Spread spread;
  for (int blocks = 1; blocks <= most_blocks; blocks *= 2) {
    const std::int64_t slice = round_up(ceil_div(padded_vocab, blocks), pack_width<T>);
    const std::int64_t bytes = 2 * slice * static_cast<std::int64_t>(sizeof(T)) + reserved_bytes;
    if (bytes <= most_shared_bytes(device)) spread = {blocks, static_cast<int>(slice)};
    if (bytes * resident_blocks <= most_shared_bytes(device)) break;
  }
  return spread;
}

template <typename T> void launch_resident(StreamRef stream, const Arguments<T>& args, std::int64_t rows, Spread spread) {
  const std::size_t bytes = 2 * static_cast<std::size_t>(spread.slice) * sizeof(T);
  const auto kernel = resident_cross_entropy_kernel<T>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(spread.blocks);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(spread.blocks));
  config.blockDim = dim3(resident_threads);
  config.dynamicSmemBytes = bytes;
  config.stream = native(stream);
  config.attrs = &cluster;
  config.numAttrs = spread.blocks > 1 ? 1 : 0;
  int resident = 0;  // rows in work at once
  if (spread.blocks > 1) {
    check(cudaOccupancyMaxActiveClusters(&resident, kernel, &config));
  } else {
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, resident_threads, bytes));
    resident *= multiprocessors(stream.device());
  }
  config.gridDim = dim3(grid_size(std::min<std::int64_t>(resident, rows) * spread.blocks));
  check(cudaLaunchKernelEx(&config, kernel, args, rows, spread.slice));
}

}  // namespace

void cross_entropy(StreamRef stream, const CrossEntropy& args) {
  const std::int64_t rows = args.logits.shape[0], padded_vocab = args.logits.shape[1];
  if (rows == 0) return;
  with_type(args.logits.dtype, [&](auto t) {
    using T = decltype(t);
    const Arguments<T> arguments{device_pointer<T>(args.logits),      device_pointer<int>(args.targets),
                                 device_pointer<float>(args.losses),  static_cast<int>(args.vocab),
                                 static_cast<int>(padded_vocab),      args.scale,
                                 args.write_gradient};
    const bool vectorised = padded_vocab % pack_width<T> == 0 && aligned_16({args.logits.data});
    const Spread spread = vectorised ? choose_spread<T>(stream.device(), padded_vocab) : Spread{};
    if (spread.blocks > 0) {
      launch_resident<T>(stream, arguments, rows, spread);
    } else {
      streaming_cross_entropy_kernel<T><<<grid_size(rows), streaming_threads, 0, native(stream)>>>(arguments);
      check_launch();
    }
  });
}

}  // namespace plait::ops::cuda
