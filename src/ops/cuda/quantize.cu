// A pass for the largest magnitude, and one that rounds. The latter moves tiles of 64 × 64 elements through shared memory where
// the transposed form is wanted.
#include <cuda_fp8.h>

#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/launch.h"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

constexpr int threads = 256;
constexpr int tile = 64;
constexpr int chunk = 8;  // elements of an access of 16 bytes
constexpr int tile_stride = tile + 4;
constexpr int loads = 4;  // of a thread at once, where each reads a tensor from end to end
constexpr unsigned infinity_bits = 0x7f800000u;

// fp8_scale() of a float, by its bits: the least power of two that is at least largest / (1.75 · 2^8).
__device__ float scale_of(unsigned bits) {
  if (bits >= infinity_bits) return __uint_as_float(infinity_bits);
  const int exponent = static_cast<int>(bits >> 23) - 127 - 8 + ((bits & 0x7fffffu) > 0x600000u ? 1 : 0);
  return __uint_as_float(static_cast<unsigned>(max(exponent, -126) + 127) << 23);
}

// Of 16-bit floats as unsigned numbers: without their signs they are in the order of what they stand for, NaN on top. `out` is
// the scale's four words, zero: the scale, the largest magnitude, blocks that are done, nothing. The last block finishes it.
__global__ void scale_kernel(const uint4* x, std::int64_t chunks, unsigned* out) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ unsigned of_warps[threads / warp_lanes];
  unsigned most = 0;
  const auto take = [&](const uint4& words) {
    for (const unsigned word : {words.x, words.y, words.z, words.w}) most = __vmaxu2(most, word & 0x7fff7fffu);
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
  most = __reduce_max_sync(full_warp, max(most >> 16, most & 0xffffu));
  if (threadIdx.x % warp_lanes == 0) of_warps[threadIdx.x / warp_lanes] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const unsigned of_warp : of_warps) most = max(most, of_warp);
  atomicMax(out + 1, most << 16);  // a bf16 is the upper half of a float
  __threadfence();
  if (atomicAdd(out + 2, 1u) + 1 < gridDim.x) return;
  const unsigned largest = atomicMax(out + 1, 0u);
  out[0] = __float_as_uint(scale_of(largest));
  out[1] = min(largest, infinity_bits);  // not NaN, so that ranks can take the largest
  out[2] = 0;
}

__device__ uint2 round_chunk(const uint4& words, float inverse) {
  const auto pair = [&](unsigned word) {
    const float2 values{__uint_as_float(word << 16) * inverse, __uint_as_float(word & 0xffff0000u) * inverse};
    return static_cast<unsigned>(__nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, __NV_E4M3));
  };
  return {pair(words.x) | pair(words.y) << 16, pair(words.z) | pair(words.w) << 16};
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

template <bool Values>
__global__ void round_kernel(const std::uint16_t* x, std::int64_t rows, std::int64_t columns, const float* scale,
                             std::uint8_t* values, std::uint8_t* transposed) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ __align__(16) std::uint8_t turned[tile * tile_stride];
  const float inverse = 1.0f / scale[0];  // exact
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile,
                     first_column = static_cast<std::int64_t>(blockIdx.x) * tile;
  constexpr int chunks = tile / chunk, rows_at_once = threads / chunks;
  const int column = static_cast<int>(threadIdx.x) % chunks * chunk;
  for (int row = static_cast<int>(threadIdx.x) / chunks; row < tile; row += rows_at_once) {
    if (first_row + row >= rows || first_column + column >= columns) continue;
    const std::int64_t at = (first_row + row) * columns + first_column + column;
    const uint2 rounded = round_chunk(*reinterpret_cast<const uint4*>(x + at), inverse);
    if constexpr (Values) *reinterpret_cast<uint2*>(values + at) = rounded;
#pragma unroll
    for (int i = 0; i < chunk; ++i) {
      const unsigned word = i < 4 ? rounded.x : rounded.y;
      turned[(column + i) * tile_stride + row] = static_cast<std::uint8_t>(word >> (i % 4 * 8));
    }
  }
  __syncthreads();
  constexpr int wide = 16, wides = tile / wide;
  const int turned_row = static_cast<int>(threadIdx.x) / wides, turned_column = static_cast<int>(threadIdx.x) % wides * wide;
  if (first_column + turned_row >= columns || first_row + turned_column >= rows) return;
  const auto* from = reinterpret_cast<const unsigned*>(turned + turned_row * tile_stride + turned_column);
  *reinterpret_cast<uint4*>(transposed + (first_column + turned_row) * rows + first_row + turned_column) = {from[0], from[1],
                                                                                                            from[2], from[3]};
}

static_assert(threads == tile * tile / 16, "each thread writes 16 bytes of the transposed tile");

// Of a kernel whose threads go through `items` together, `loads` each at least.
unsigned blocks_for(StreamRef stream, std::int64_t items) {
  constexpr std::int64_t blocks_per_multiprocessor = 8;
  return grid_size(std::clamp<std::int64_t>(ceil_div(items, threads * loads), 1,
                                            blocks_per_multiprocessor * multiprocessors(stream.device())));
}

}  // namespace

void find_scale(StreamRef stream, View x, View scale) {
  require(aligned_16({x.data, scale.data}), "find_scale: tensors are aligned to 16 bytes");
  auto* const out = device_pointer<unsigned>(scale);
  const std::int64_t chunks = x.elements() / chunk;
  check(cudaMemsetAsync(out, 0, scale.bytes(), native(stream)));
  launch(stream, {blocks_for(stream, chunks), threads}, scale_kernel, device_pointer<const uint4>(x), chunks, out);
}

void quantize(StreamRef stream, View x, const Quantized& out) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  require(aligned_16({x.data, out.values.data, out.transposed.data}), "quantize: tensors are aligned to 16 bytes");
  if (x.elements() == 0) return;
  const auto* const scale = device_pointer<const float>(out.scale);
  if (!out.transposed) {
    if (!out.values) return;
    const std::int64_t count = x.elements() / (2 * chunk);
    return launch(stream, {blocks_for(stream, count), threads}, round_values_kernel, device_pointer<const uint4>(x), count,
                  scale, device_pointer<uint4>(out.values));
  }
  const dim3 grid(grid_size(ceil_div(columns, tile)), grid_size(ceil_div(rows, tile)));
  const auto kernel = out.values ? round_kernel<true> : round_kernel<false>;
  launch(stream, {grid, threads}, kernel, device_pointer<const std::uint16_t>(x), rows, columns, scale,
         device_pointer<std::uint8_t>(out.values), device_pointer<std::uint8_t>(out.transposed));
}

}  // namespace plait::ops::cuda
