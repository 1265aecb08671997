#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

constexpr int threads = 512;
constexpr int packs_per_iteration = 4;  // independent loads in flight per thread

struct Identity {
  __device__ float operator()(float x) const { return x; }
};
struct Square {
  __device__ float operator()(float x) const { return x * x; }
};

// partial[block] = Σ over the block's share of f(value). Each thread keeps one sum per pack of an iteration, so no sum is long.
template <typename T, int Width, typename F>
__global__ void __launch_bounds__(threads) partial_sums_kernel(const T* values, std::int64_t count, float* partial, F f) {
  __shared__ float shared[threads / warp_lanes];
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads * Width;
  const std::int64_t packed = count / Width * Width;
  std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * Width;
  float sums[packs_per_iteration] = {};
  for (; i + (packs_per_iteration - 1) * stride < packed; i += packs_per_iteration * stride) {
    Pack<T, Width> packs[packs_per_iteration];
#pragma unroll
    for (int k = 0; k < packs_per_iteration; ++k) packs[k] = load_pack<Width>(values + i + k * stride);
#pragma unroll
    for (int k = 0; k < packs_per_iteration; ++k) {
      float x[Width], sum = 0.0f;
      unpack(packs[k], x);
#pragma unroll
      for (int j = 0; j < Width; ++j) sum += f(x[j]);
      sums[k] += sum;
    }
  }
  for (; i < packed; i += stride) {
    float x[Width];
    load<Width>(values + i, x);
#pragma unroll
    for (int j = 0; j < Width; ++j) sums[0] += f(x[j]);
  }
  if (blockIdx.x == 0 && threadIdx.x < count - packed) sums[1] += f(to_float(values[packed + threadIdx.x]));
  const float total = block_sum((sums[0] + sums[1]) + (sums[2] + sums[3]), shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(threads)
    final_sum_kernel(const float* partial, int blocks, float* out, float scale, bool accumulate) {
  __shared__ float shared[threads / warp_lanes];
  float sum = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += threads) sum += partial[i];
  const float total = block_sum(sum, shared) * scale;
  if (threadIdx.x == 0) *out = accumulate ? *out + total : total;
}

// One block: a micro-batch has a few thousand targets.
__global__ void __launch_bounds__(threads)
    count_ignored_kernel(const int* targets, std::int64_t count, float* out, bool accumulate) {
  __shared__ float shared[threads / warp_lanes];
  int ignored = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += threads) ignored += targets[i] == -1 ? 1 : 0;
  const float total = block_sum(static_cast<float>(ignored), shared);
  if (threadIdx.x == 0) *out = accumulate ? *out + total : total;
}

template <typename F>
void reduce(StreamRef stream, OpContext& context, View values, View out, float scale, bool accumulate, F f) {
  float* partial = device_pointer<float>(context.workspace());
  const int most_blocks = multiprocessors(stream.device()) * (2048 / threads);
  with_type(values.dtype, [&](auto t) {
    using T = decltype(t);
    with_width<T>(aligned_16({values.data}), [&](auto w) {
      constexpr int width = decltype(w)::value;
      const std::int64_t wanted = ceil_div(values.elements(), threads * width * packs_per_iteration);
      const int blocks = static_cast<int>(std::clamp<std::int64_t>(wanted, 1, most_blocks));
      partial_sums_kernel<T, width><<<static_cast<unsigned>(blocks), threads, 0, native(stream)>>>(
          device_pointer<T>(values), values.elements(), partial, f);
      check_launch();
      final_sum_kernel<<<1, threads, 0, native(stream)>>>(partial, blocks, device_pointer<float>(out), scale, accumulate);
      check_launch();
    });
  });
}

}  // namespace

void sum(StreamRef stream, OpContext& context, View values, View out, float scale, bool accumulate) {
  reduce(stream, context, values, out, scale, accumulate, Identity{});
}

void sum_of_squares(StreamRef stream, OpContext& context, View values, View out, bool accumulate) {
  reduce(stream, context, values, out, 1.0f, accumulate, Square{});
}

void count_ignored(StreamRef stream, View targets, View out, bool accumulate) {
  count_ignored_kernel<<<1, threads, 0, native(stream)>>>(device_pointer<int>(targets), targets.elements(),
                                                          device_pointer<float>(out), accumulate);
  check_launch();
}

}  // namespace plait::ops::cuda
