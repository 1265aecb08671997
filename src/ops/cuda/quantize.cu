// A pass for the largest magnitude, and one that rounds. The latter moves tiles of 64 × 64 elements through shared memory where
// the transposed form is wanted.
#include <cuda_fp8.h>

#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/column_sum.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/scale.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

constexpr int threads = 256;
constexpr int tile = 64;
constexpr int chunk = 8;  // elements of an access of 16 bytes
constexpr int tile_stride = tile + 4;
constexpr int loads = 4;  // of a thread at once, where each reads a tensor from end to end

__global__ void scale_kernel(const uint4* x, std::int64_t chunks, unsigned* scale, ScaleCounters counters) {
  await_previous_kernel();
  let_next_kernel_begin();
  LargestMagnitude largest;
  const auto take = [&](const uint4& words) {
    for (const unsigned word : {words.x, words.y, words.z, words.w}) largest.take(word);
  };
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  for (; i + (loads - 1) * stride < chunks; i += loads * stride) {
    uint4 words[loads];
#pragma unroll
    for (int n = 0; n < loads; ++n) words[n] = x[i + n * stride];
#pragma unroll
    for (int n = 0; n < loads; ++n) take(words[n]);
  }
  for (; i < chunks; i += stride) take(x[i]);
  finish_scale(largest, scale, counters);
}

__device__ uint2 round_chunk(const uint4& words, float inverse) {
  const auto pair = [&](unsigned word) {
    const float2 values{__uint_as_float(word << 16) * inverse, __uint_as_float(word & 0xffff0000u) * inverse};
    return static_cast<unsigned>(__nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, __NV_E4M3));
  };
  return {pair(words.x) | pair(words.y) << 16, pair(words.z) | pair(words.w) << 16};
}

__device__ void add_chunk(const uint4& words, float (&sums)[chunk]) {
  const unsigned pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < chunk / 2; ++i) {
    sums[2 * i] += __uint_as_float(pairs[i] << 16);
    sums[2 * i + 1] += __uint_as_float(pairs[i] & 0xffff0000u);
  }
}

// x as it lies, 16 elements a thread at once.
__global__ void round_values_kernel(const uint4* x, std::int64_t count, const float* scale, uint4* values) {
  await_previous_kernel();
  let_next_kernel_begin();
  const float inverse = 1.0f / scale[0];  // exact
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) {
    const uint4 left = x[2 * i], right = x[2 * i + 1];
    const uint2 low = round_chunk(left, inverse), high = round_chunk(right, inverse);
    values[i] = {low.x, low.y, high.x, high.y};
  }
}

// Tiles of 64 columns: block (x, y) those of rows y, y + gridDim.y, ... With Sums it also writes what they sum up to, before
// rounding, to partial[y, columns].
template <bool Values, bool Sums>
__global__ void __launch_bounds__(threads)
    round_kernel(const std::uint16_t* x, std::int64_t rows, std::int64_t columns, const float* scale, std::uint8_t* values,
                 std::uint8_t* transposed, float* partial) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ __align__(16) std::uint8_t turned[tile * tile_stride];
  const float inverse = 1.0f / scale[0];  // exact
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * tile;
  constexpr int chunks = tile / chunk, rows_at_once = threads / chunks;
  const int column = static_cast<int>(threadIdx.x) % chunks * chunk;
  constexpr int wide = 16, wides = tile / wide;
  const int turned_row = static_cast<int>(threadIdx.x) / wides, turned_column = static_cast<int>(threadIdx.x) % wides * wide;
  float sums[chunk] = {};
  for (std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile; first_row < rows;
       first_row += static_cast<std::int64_t>(gridDim.y) * tile) {
#pragma unroll
    for (int row = static_cast<int>(threadIdx.x) / chunks; row < tile; row += rows_at_once) {
      if (first_row + row >= rows || first_column + column >= columns) continue;
      const std::int64_t at = (first_row + row) * columns + first_column + column;
      const uint4 words = *reinterpret_cast<const uint4*>(x + at);
      if constexpr (Sums) add_chunk(words, sums);
      const uint2 rounded = round_chunk(words, inverse);
      if constexpr (Values) *reinterpret_cast<uint2*>(values + at) = rounded;
#pragma unroll
      for (int i = 0; i < chunk; ++i) {
        const unsigned word = i < 4 ? rounded.x : rounded.y;
        turned[(column + i) * tile_stride + row] = static_cast<std::uint8_t>(word >> (i % 4 * 8));
      }
    }
    __syncthreads();
    if (first_column + turned_row < columns && first_row + turned_column < rows) {
      const auto* from = reinterpret_cast<const unsigned*>(turned + turned_row * tile_stride + turned_column);
      *reinterpret_cast<uint4*>(transposed + (first_column + turned_row) * rows + first_row + turned_column) = {
          from[0], from[1], from[2], from[3]};
    }
    if constexpr (Sums) __syncthreads();  // before the next tile
  }
  if constexpr (Sums) {
    __shared__ float of_warps[threads / warp_lanes][tile];
    // Lanes that are `chunks` apart have the same columns.
#pragma unroll
    for (int i = 0; i < chunk; ++i) {
#pragma unroll
      for (int offset = warp_lanes / 2; offset >= chunks; offset /= 2) sums[i] += __shfl_xor_sync(full_warp, sums[i], offset);
    }
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
    if (lane < chunks) {
#pragma unroll
      for (int i = 0; i < chunk; ++i) of_warps[threadIdx.x / warp_lanes][column + i] = sums[i];
    }
    __syncthreads();
    if (threadIdx.x < tile && first_column + threadIdx.x < columns) {
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < threads / warp_lanes; ++warp) sum += of_warps[warp][threadIdx.x];
      partial[static_cast<std::int64_t>(blockIdx.y) * columns + first_column + threadIdx.x] = sum;
    }
  }
}

static_assert(threads == tile * tile / 16, "each thread writes 16 bytes of the transposed tile");

// Rows of partial sums: enough that every multiprocessor has its blocks, and few beside what is summed.
constexpr std::int64_t tiles_of_a_sum = 4;

// Of a kernel whose threads go through `items` together, `loads` each at least.
unsigned blocks_for(StreamRef stream, std::int64_t items) {
  constexpr std::int64_t blocks_per_multiprocessor = 8;
  return grid_size(std::clamp<std::int64_t>(ceil_div(items, threads * loads), 1,
                                            blocks_per_multiprocessor * multiprocessors(stream.device())));
}

}  // namespace

void find_scale(StreamRef stream, OpContext& context, View x, View scale) {
  require(aligned_16({x.data, scale.data}), "find_scale: tensors are aligned to 16 bytes");
  const std::int64_t chunks = x.elements() / chunk;
  launch(stream, {blocks_for(stream, chunks), threads}, scale_kernel, device_pointer<const uint4>(x), chunks,
         device_pointer<unsigned>(scale), cuda_context(context).scale_counters(native(stream)));
}

void quantize(StreamRef stream, OpContext& context, View x, const Quantized& out, const RowSums& sums) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  require(aligned_16({x.data, out.values.data, out.transposed.data}), "quantize: tensors are aligned to 16 bytes");
  const auto* const scale = device_pointer<const float>(out.scale);
  if (!out.transposed || rows == 0) {
    if (sums.out) column_sum(stream, context, x, sums.out, sums.accumulate);
    if (!out.values || rows == 0) return;
    const std::int64_t count = x.elements() / (2 * chunk);
    return launch(stream, {blocks_for(stream, count), threads}, round_values_kernel, device_pointer<const uint4>(x), count,
                  scale, device_pointer<uint4>(out.values));
  }
  const std::int64_t tiles = ceil_div(rows, tile);
  const auto run = [&](auto kernel, std::int64_t parts, float* partial) {
    const dim3 grid(grid_size(ceil_div(columns, tile)), grid_size(parts));
    launch(stream, {grid, threads}, kernel, device_pointer<const std::uint16_t>(x), rows, columns, scale,
           device_pointer<std::uint8_t>(out.values), device_pointer<std::uint8_t>(out.transposed), partial);
  };
  if (!sums.out) return run(out.values ? round_kernel<true, false> : round_kernel<false, false>, tiles, nullptr);
  const std::int64_t fitting = static_cast<std::int64_t>(context.workspace().bytes() / sizeof(float)) / columns;
  require(fitting >= 1, "quantize: the workspace is smaller than one row");
  const std::int64_t parts = std::min({ceil_div(tiles, tiles_of_a_sum), fitting, std::int64_t{65535}});
  auto* const partial = device_pointer<float>(context.workspace());
  run(out.values ? round_kernel<true, true> : round_kernel<false, true>, parts, partial);
  finish_column_sums(stream, partial, parts, sums.out, {}, sums.accumulate);
}

}  // namespace plait::ops::cuda
