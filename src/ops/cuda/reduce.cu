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

// The elements that a block reads at once.
template <int Width>
inline constexpr std::int64_t chunk = std::int64_t{threads} * Width * packs_per_iteration;

// A list of arrays, cut into chunks that are numbered from the first chunk of the first array to the last chunk of the last
// one.
constexpr int most_parts = 96;
template <typename T>
struct Parts {
  const T* values[most_parts];
  std::int64_t counts[most_parts];
  std::int64_t ends[most_parts];  // chunks up to this part's last
  int parts;
};

// partial[block] = Σ over the block's chunks of f(value). Each thread keeps one sum per pack of a chunk, so no sum is long.
template <typename T, int Width, typename F>
__global__ void __launch_bounds__(threads) partial_sums_kernel(const __grid_constant__ Parts<T> list, float* partial, F f) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[threads / warp_lanes];
  float sums[packs_per_iteration] = {};
  int part = 0;
  for (std::int64_t c = blockIdx.x; c < list.ends[list.parts - 1]; c += gridDim.x) {
    while (c >= list.ends[part]) ++part;
    const T* const values = list.values[part];
    const std::int64_t count = list.counts[part], first = (c - (part > 0 ? list.ends[part - 1] : 0)) * chunk<Width>;
    if (first + chunk<Width> <= count) {
      Pack<T, Width> packs[packs_per_iteration];
#pragma unroll
      for (int k = 0; k < packs_per_iteration; ++k)
        packs[k] = load_pack<Width>(values + first + (k * threads + static_cast<int>(threadIdx.x)) * Width);
#pragma unroll
      for (int k = 0; k < packs_per_iteration; ++k) {
        float x[Width], sum = 0.0f;
        unpack(packs[k], x);
#pragma unroll
        for (int j = 0; j < Width; ++j) sum += f(x[j]);
        sums[k] += sum;
      }
    } else {
      for (std::int64_t i = first + threadIdx.x; i < count; i += threads) sums[0] += f(to_float(values[i]));
    }
  }
  const float total = block_sum((sums[0] + sums[1]) + (sums[2] + sums[3]), shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(threads)
    final_sum_kernel(const float* partial, int blocks, float* out, float scale, bool accumulate) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[threads / warp_lanes];
  float sum = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += threads) sum += partial[i];
  const float total = block_sum(sum, shared) * scale;
  if (threadIdx.x == 0) *out = accumulate ? *out + total : total;
}

// One block: a micro-batch has a few thousand targets.
__global__ void __launch_bounds__(threads)
    count_ignored_kernel(const int* targets, std::int64_t count, float* out, bool accumulate) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[threads / warp_lanes];
  int ignored = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += threads) ignored += targets[i] == -1 ? 1 : 0;
  const float total = block_sum(static_cast<float>(ignored), shared);
  if (threadIdx.x == 0) *out = accumulate ? *out + total : total;
}

template <typename F>
void reduce(StreamRef stream, OpContext& context, std::span<const View> values, View out, float scale, bool accumulate, F f) {
  float* partial = device_pointer<float>(context.workspace());
  const int most_blocks = multiprocessors(stream.device()) * (2048 / threads);
  with_type(values.front().dtype, [&](auto t) {
    using T = decltype(t);
    const bool aligned = std::ranges::all_of(values, [](const View& part) { return aligned_16({part.data}); });
    with_width<T>(aligned, [&](auto w) {
      constexpr int width = decltype(w)::value;
      Parts<T> list;
      std::int64_t chunks = 0;
      list.parts = static_cast<int>(values.size());
      for (std::size_t n = 0; n < values.size(); ++n) {
        chunks += ceil_div(values[n].elements(), chunk<width>);
        list.values[n] = device_pointer<T>(values[n]), list.counts[n] = values[n].elements(), list.ends[n] = chunks;
      }
      const int blocks = static_cast<int>(std::clamp<std::int64_t>(chunks, 1, most_blocks));
      launch(stream, {static_cast<unsigned>(blocks), threads}, partial_sums_kernel<T, width, F>, list, partial, f);
      launch(stream, {1, threads}, final_sum_kernel, partial, blocks, device_pointer<float>(out), scale, accumulate);
    });
  });
}

}  // namespace

void sum(StreamRef stream, OpContext& context, View values, View out, float scale, bool accumulate) {
  reduce(stream, context, {&values, 1}, out, scale, accumulate, Identity{});
}

void sum_of_squares(StreamRef stream, OpContext& context, std::span<const View> parts, View out) {
  for (std::size_t first = 0; first < parts.size(); first += most_parts) {
    const std::size_t count = std::min<std::size_t>(most_parts, parts.size() - first);
    reduce(stream, context, parts.subspan(first, count), out, 1.0f, first > 0, Square{});
  }
}

void count_ignored(StreamRef stream, View targets, View out, bool accumulate) {
  launch(stream, {1, threads}, count_ignored_kernel, device_pointer<int>(targets), targets.elements(),
         device_pointer<float>(out), accumulate);
}

}  // namespace plait::ops::cuda
