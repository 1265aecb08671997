// Sums and maxima over a warp or a block, in a fixed order; every thread receives the result.
#pragma once

namespace plait::ops::cuda {

inline constexpr int warp_lanes = 32;
inline constexpr unsigned full_warp = 0xffffffffu;

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(full_warp, x, offset);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(full_warp, x, offset));
  return x;
}

// `shared`: one float per warp. A barrier on entry makes it reusable at once. Needs a block of whole warps.
__device__ inline float block_sum(float x, float* shared) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, warps = blockDim.x / warp_lanes;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

__device__ inline float block_max(float x, float* shared) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, warps = blockDim.x / warp_lanes;
  x = warp_max(x);
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  return warp_max(lane < warps ? shared[lane] : -INFINITY);
}

}  // namespace plait::ops::cuda
