// The scale of an FP8 operand (ops/quantize.h), found by the kernel that writes the operand or by one that reads it.
#pragma once

#include <cstdint>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/op_context.h"

namespace plait::ops::cuda {

// Two words of an op context that are zero between kernels: the largest magnitude so far, and blocks that are done.
using ScaleCounters = unsigned*;

constexpr unsigned infinity_bits = 0x7f800000u;

// The largest magnitude of 16-bit floats. Without their signs their bits, as unsigned numbers, are ordered like the values, NaN
// on top.
struct LargestMagnitude {
  unsigned pairs = 0;
  __device__ unsigned bits() const { return max(pairs >> 16, pairs & 0xffffu); }
  __device__ void take(const uint4& words) {
    for (const unsigned word : {words.x, words.y, words.z, words.w}) take(word);
  }
  __device__ void take(unsigned pair) { pairs = __vmaxu2(pairs, pair & 0x7fff7fffu); }
  template <int Width>
  __device__ void take(const Pack<__nv_bfloat16, Width>& pack) {
    if constexpr (Width == 1) {
      take(static_cast<unsigned>(__bfloat16_as_ushort(pack.values[0])));
    } else {
#pragma unroll
      for (int i = 0; i < Width / 2; ++i) take(reinterpret_cast<const unsigned*>(pack.values)[i]);
    }
  }
};

// fp8_scale() of a float, on its bits: the least power of two that is at least largest / (1.75 · 2^8).
__device__ inline float scale_of(unsigned bits) {
  if (bits >= infinity_bits) return __uint_as_float(infinity_bits);
  const int exponent = static_cast<int>(bits >> 23) - 127 - 8 + ((bits & 0x7fffffu) > 0x600000u ? 1 : 0);
  return __uint_as_float(static_cast<unsigned>(max(exponent, -126) + 127) << 23);
}

// Called by every thread of every block, at most 1024 threads per block. The last block to arrive writes the scale's four
// words.
__device__ inline void finish_scale(const LargestMagnitude& of_thread, unsigned* scale, ScaleCounters counters) {
  __shared__ unsigned of_warps[warp_lanes];
  unsigned most = __reduce_max_sync(full_warp, of_thread.bits());
  if (threadIdx.x % warp_lanes == 0) of_warps[threadIdx.x / warp_lanes] = most;
  __syncthreads();
  if (threadIdx.x >= warp_lanes) return;
  most = __reduce_max_sync(full_warp, threadIdx.x < blockDim.x / warp_lanes ? of_warps[threadIdx.x] : 0u);
  if (threadIdx.x != 0) return;
  atomicMax(counters, most << 16);  // a bf16 is the upper half of a float
  __threadfence();
  if (atomicAdd(counters + 1, 1u) + 1 < gridDim.x) return;
  const unsigned largest = atomicExch(counters, 0u);
  counters[1] = 0;
  scale[0] = __float_as_uint(scale_of(largest));
  scale[1] = min(largest, infinity_bits);  // not NaN, so that ranks can take the largest
  scale[2] = scale[3] = 0;
}

// Receives the scale of a kernel's bf16 output, found on the way: LargestMagnitude takes each pack, and finish() works like
// finish_scale().
struct WantedScale {
  static constexpr bool wanted = true;
  using Largest = LargestMagnitude;
  unsigned* scale;
  ScaleCounters counters;
  __device__ void finish(const LargestMagnitude& of_thread) const { finish_scale(of_thread, scale, counters); }
};
// Stands for no scale.
struct NoScale {
  static constexpr bool wanted = false;
  struct Largest {
    template <typename P>
    __device__ void take(const P&) {}
  };
  __device__ void finish(const Largest&) const {}
};

// Calls f with WantedScale or NoScale. Only T = bf16 may want a scale.
template <typename T, typename F>
void with_scale(StreamRef stream, OpContext& context, const View& scale, F&& f) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (scale) {
      require(aligned_16({scale.data}), "a scale is aligned to 16 bytes");
      return f(WantedScale{device_pointer<unsigned>(scale), cuda_context(context).scale_counters(native(stream))});
    }
  }
  f(NoScale());
}

// with_width() for a kernel that may find a scale: only whole packs if it does.
template <typename T, typename Scale, typename F>
void with_width_of(bool vectorised, F&& f) {
  if constexpr (Scale::wanted) {
    require(vectorised, "tensors whose scale is found are aligned to 16 bytes, and their rows are whole packs");
    f(std::integral_constant<int, pack_width<T>>{});
  } else {
    with_width<T>(vectorised, f);
  }
}

constexpr int scaling_threads = 256;

// An elementwise() body with whole packs only; each pack it writes also goes to `largest`.
template <int Width, typename Body>
__global__ void __launch_bounds__(scaling_threads)
    scaling_elementwise_kernel(std::int64_t packs, Body body, unsigned* scale, ScaleCounters counters) {
  await_previous_kernel();
  let_next_kernel_begin();
  LargestMagnitude largest;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * scaling_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * scaling_threads + threadIdx.x; i < packs; i += stride)
    body.template run<Width>(i * Width, largest);
  finish_scale(largest, scale, counters);
}

// elementwise() for bf16 that also finds the scale of its output. `count` is a multiple of the pack's width.
template <typename Body>
void scaling_elementwise(StreamRef stream, OpContext& context, std::int64_t count, const Body& body, View scale) {
  constexpr int width = pack_width<__nv_bfloat16>;
  const auto kernel = scaling_elementwise_kernel<width, Body>;
  const std::int64_t packs = count / width, blocks = std::max<std::int64_t>(1, ceil_div(packs, scaling_threads));
  const std::int64_t resident = resident_blocks(stream, kernel, scaling_threads);
  launch(stream, {grid_size(std::min(resident, blocks)), scaling_threads}, kernel, packs, body, device_pointer<unsigned>(scale),
         cuda_context(context).scale_counters(native(stream)));
}

}  // namespace plait::ops::cuda
