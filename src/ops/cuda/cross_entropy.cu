// Each row is read from device memory once and written once. In between it lives in shared memory, spread over a cluster of
// thread blocks whose size is chosen so that several rows are in work on every multiprocessor: while one row computes, others
// load and store. The blocks of a cluster exchange their maximum and their sum of exponentials through distributed shared
// memory. Rows that are not aligned to 16 bytes, or longer than eight blocks hold, or on devices without clusters longer than
// one block holds, take a kernel that reads the row three times.
#include <cooperative_groups.h>

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

// The hardware's exponential for bf16, whose rounding hides its error of a few units in the last place of a float.
template <typename T> __device__ float exponential(float x) {
  if constexpr (sizeof(T) == 2) return __expf(x);
  return expf(x);
}

// Maximum of a set of logits and the sum of exp(logit - maximum) over it.
struct Softmax {
  float maximum, sum;
};

template <typename T> __device__ Softmax merge(Softmax a, Softmax b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  const float weight_a = a.maximum == -INFINITY ? 0.0f : exponential<T>(a.maximum - maximum);
  const float weight_b = b.maximum == -INFINITY ? 0.0f : exponential<T>(b.maximum - maximum);
  return {maximum, a.sum * weight_a + b.sum * weight_b};
}

// The gradient of the Width logits from `column` on.
template <typename T, int Width>
__device__ Pack<T, Width> gradient(const Pack<T, Width>& logits, int column, float maximum, float factor, float scale, int target, int vocab) {
  float values[Width];
  unpack(logits, values);
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    values[i] = exponential<T>(values[i] - maximum) * factor;
    if (column + i == target) values[i] -= scale;
    if (column + i >= vocab) values[i] = 0.0f;
  }
  return make_pack<T>(values);
}

constexpr int resident_threads = 256;
constexpr int loads_in_flight = 8;

template <typename T>
__global__ void __launch_bounds__(resident_threads, 4) resident_cross_entropy_kernel(Arguments<T> args, int slice) {
  constexpr int width = pack_width<T>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* row = reinterpret_cast<T*>(shared_bytes);  // this block's slice; a thread touches only packs it loaded itself
  __shared__ float shared[resident_threads / warp_lanes];
  __shared__ Softmax block_softmax;

#if __CUDA_ARCH__ >= 900
  auto cluster = cooperative_groups::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks()), rank = static_cast<int>(cluster.block_rank());
#else
  const int blocks = 1, rank = 0;
#endif
  const std::int64_t row_index = blockIdx.x / blocks;
  const int target = args.targets[row_index];
  T* logits = args.logits + row_index * args.padded_vocab;
  const int begin = rank * slice, end = min(begin + slice, args.padded_vocab);
  const int thread_begin = begin + static_cast<int>(threadIdx.x) * width;
  constexpr int stride = resident_threads * width;

  if (target < 0) {  // the same for all blocks of the cluster
    if (args.write_gradient) {
      const Pack<T, width> zeros{};
      for (int column = thread_begin; column < end; column += stride) store_pack(logits + column, zeros);
    }
    if (rank == 0 && threadIdx.x == 0) args.losses[row_index] = 0.0f;
    return;
  }
  // Read before the barriers below, hence before any block overwrites the row.
  const float target_logit = rank == 0 && threadIdx.x == 0 ? to_float(logits[target]) : 0.0f;

  float maximum = -INFINITY;
  for (int first = thread_begin; first < end; first += loads_in_flight * stride) {
    Pack<T, width> packs[loads_in_flight];
#pragma unroll
    for (int k = 0; k < loads_in_flight; ++k) {
      if (first + k * stride < end) packs[k] = load_pack<width>(logits + first + k * stride);
    }
#pragma unroll
    for (int k = 0; k < loads_in_flight; ++k) {
      const int column = first + k * stride;
      if (column < end) {
        store_pack(row + (column - begin), packs[k]);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          if (column + i < args.vocab) maximum = fmaxf(maximum, to_float(packs[k].values[i]));
        }
      }
    }
  }
  maximum = block_max(maximum, shared);
  float sum = 0.0f;
#pragma unroll 2
  for (int column = thread_begin; column < end; column += stride) {
    float values[width];
    load<width>(row + (column - begin), values);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (column + i < args.vocab) sum += exponential<T>(values[i] - maximum);
    }
  }
  sum = block_sum(sum, shared);
  Softmax softmax{maximum, sum};
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) {
    if (threadIdx.x == 0) block_softmax = softmax;
    cluster.sync();
    softmax = *cluster.map_shared_rank(&block_softmax, 0);
    for (int other = 1; other < blocks; ++other) softmax = merge<T>(softmax, *cluster.map_shared_rank(&block_softmax, other));
    cluster.barrier_arrive();  // this block reads no other's memory from here on
  }
#else
  static_cast<void>(block_softmax);
#endif
  if (rank == 0 && threadIdx.x == 0) args.losses[row_index] = logf(softmax.sum) + softmax.maximum - target_logit;
  if (args.write_gradient) {
    const float factor = args.scale / softmax.sum;
#pragma unroll 2
    for (int column = thread_begin; column < end; column += stride) {
      const Pack<T, width> pack = load_pack<width>(row + (column - begin));
      store_pack(logits + column, gradient<T, width>(pack, column, softmax.maximum, factor, args.scale, target, args.vocab));
    }
  }
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) cluster.barrier_wait();  // a block may not leave while others read its result
#endif
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
  for (int i = thread; i < args.vocab; i += streaming_threads) sum += exponential<T>(to_float(logits[i]) - maximum);
  sum = block_sum(sum, shared);
  if (thread == 0) args.losses[row_index] = logf(sum) + maximum - target_logit;
  if (!args.write_gradient) return;
  const float factor = args.scale / sum;
  for (int i = thread; i < args.padded_vocab; i += streaming_threads) {
    store_pack(logits + i, gradient<T, 1>(load_pack<1>(logits + i), i, maximum, factor, args.scale, target, args.vocab));
  }
}

// How a row is spread: blocks per row and elements per block; blocks == 0 where no such spread fits.
struct Spread {
  int blocks = 0, slice = 0;
};

template <typename T> Spread choose_spread(Device device, std::int64_t padded_vocab) {
  int major = 0, most_shared_bytes = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  check(cudaDeviceGetAttribute(&most_shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  constexpr std::int64_t reserved_bytes = 1024;                     // the kernel's static shared memory, generously
  constexpr std::int64_t preferred_bytes = 52 * std::int64_t{1024};  // four blocks on a multiprocessor
  const int most_blocks = major >= 9 ? 8 : 1;                       // 8 is the largest portable cluster
  Spread spread;
  for (int blocks = 1; blocks <= most_blocks; blocks *= 2) {
    const std::int64_t slice = round_up(ceil_div(padded_vocab, blocks), pack_width<T>);
    const std::int64_t bytes = slice * static_cast<std::int64_t>(sizeof(T));
    if (bytes <= most_shared_bytes - reserved_bytes) spread = {blocks, static_cast<int>(slice)};
    if (bytes <= preferred_bytes) break;
  }
  return spread;
}

template <typename T> void launch_resident(StreamRef stream, const Arguments<T>& args, std::int64_t rows, Spread spread) {
  const std::size_t bytes = static_cast<std::size_t>(spread.slice) * sizeof(T);
  check(cudaFuncSetAttribute(resident_cross_entropy_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(spread.blocks);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid_size(rows * spread.blocks));
  config.blockDim = dim3(resident_threads);
  config.dynamicSmemBytes = bytes;
  config.stream = native(stream);
  config.attrs = &cluster;
  config.numAttrs = spread.blocks > 1 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, resident_cross_entropy_kernel<T>, args, spread.slice));
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
