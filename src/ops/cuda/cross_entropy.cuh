// Shared code of cross_entropy.cu, whose kernels own whole rows of logits, and cross_entropy_parts.cu, whose kernels own some
// columns of every row: online softmax (Milakov & Gimelshein 2018) over packs, and the gradient of a pack.
#pragma once

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/pack.cuh"

namespace plait::ops::cuda {

inline constexpr int row_threads = 256;
inline constexpr int packs_per_step = 4;  // loads a thread has in flight

// exp(x - maximum). bf16 uses the hardware's exponential: its error of a few units in the last place of a float is far below
// the rounding of the result.
template <typename T>
__device__ float shifted_exponential(float x, float maximum) {
  if constexpr (sizeof(T) == 2) {
    constexpr float log2_e = 1.4426950408889634f;
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(x, log2_e, -maximum * log2_e)));
    return power;
  }
  return expf(x - maximum);
}

// Maximum of a set of logits and the sum of exp(logit - maximum) over it; {-inf, 0} for the empty set. A NaN among the logits
// shows in the sum.
struct Softmax {
  float maximum = -INFINITY, sum = 0.0f;
};

// The number to subtract from logits whose maximum is `maximum`: -inf - -inf is not a number.
__device__ inline float finite_shift(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

template <typename T>
__device__ Softmax merge(Softmax a, Softmax b) {
  const float maximum = fmaxf(a.maximum, b.maximum), shift = finite_shift(maximum);
  return {maximum, a.sum * shifted_exponential<T>(a.maximum, shift) + b.sum * shifted_exponential<T>(b.maximum, shift)};
}

template <typename T>
__device__ Softmax warp_merge(Softmax softmax) {
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) {
    softmax = merge<T>(softmax,
                       {__shfl_xor_sync(full_warp, softmax.maximum, offset), __shfl_xor_sync(full_warp, softmax.sum, offset)});
  }
  return softmax;
}

// Merges over a block of whole warps; every thread receives the result. `shared` is used once per kernel.
template <typename T, int Warps>
__device__ Softmax block_merge(Softmax softmax, Softmax (&shared)[Warps]) {
  softmax = warp_merge<T>(softmax);
  if (threadIdx.x % warp_lanes == 0) shared[threadIdx.x / warp_lanes] = softmax;
  __syncthreads();
  softmax = shared[0];
#pragma unroll
  for (int warp = 1; warp < Warps; ++warp) softmax = merge<T>(softmax, shared[warp]);
  return softmax;
}

template <typename T>
__device__ float pack_max(const Pack<T, 1>& pack) {
  return to_float(pack.values[0]);
}
__device__ inline float pack_max(const Pack<float, 4>& pack) {
  return fmaxf(fmaxf(pack.values[0], pack.values[1]), fmaxf(pack.values[2], pack.values[3]));
}
__device__ inline float pack_max(const Pack<__nv_bfloat16, 8>& pack) {
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(pack.values);
  const __nv_bfloat162 most = __hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3]));
  return fmaxf(__low2float(most), __high2float(most));
}

// Sets the padding (columns >= vocab) among the logits from `column` on to -inf.
template <typename T, int Width>
__device__ void mask_padding(Pack<T, Width>& logits, int column, int vocab) {
  if (column + Width <= vocab) return;
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    if (column + i >= vocab) logits.values[i] = from_float<T>(-INFINITY);
  }
}

// Softmax of this thread's packs of logits[0, length), which are the columns of a row from `first_column` on. Blocks have
// `Threads` threads.
template <typename T, int Width, int Threads>
__device__ Softmax thread_softmax(const T* logits, int length, int first_column, int vocab) {
  constexpr int stride = Threads * Width;
  Softmax softmax;
  for (int first = static_cast<int>(threadIdx.x) * Width; first < length; first += packs_per_step * stride) {
    Pack<T, Width> packs[packs_per_step];
#pragma unroll
    for (int k = 0; k < packs_per_step; ++k) {
      if (first + k * stride < length) packs[k] = load_pack<Width>(logits + first + k * stride);
    }
    float maximum = softmax.maximum;
#pragma unroll
    for (int k = 0; k < packs_per_step; ++k) {
      const int i = first + k * stride;
      if (i < length) {
        mask_padding(packs[k], first_column + i, vocab);
        maximum = fmaxf(maximum, pack_max(packs[k]));
      }
    }
    const float shift = finite_shift(maximum);
    float sum = softmax.sum * shifted_exponential<T>(softmax.maximum, shift);
#pragma unroll
    for (int k = 0; k < packs_per_step; ++k) {
      if (first + k * stride < length) {
        float values[Width];
        unpack(packs[k], values);
#pragma unroll
        for (int j = 0; j < Width; ++j) sum += shifted_exponential<T>(values[j], shift);
      }
    }
    softmax = {maximum, sum};
  }
  return softmax;
}

// The gradient of the logits from `column` on, with padding masked. `target` is the column of the target.
template <typename T, int Width>
__device__ Pack<T, Width> gradient(const Pack<T, Width>& logits, int column, float maximum, float factor, float scale,
                                   int target) {
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

}  // namespace plait::ops::cuda
