// A pack: N consecutive elements moved by one memory access, with their conversion to and from float.
#pragma once

#include <cuda_bf16.h>

namespace plait::ops::cuda {

template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T values[N];
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

template <int N, typename T>
__device__ Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, typename T>
__device__ void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

template <typename T, int N>
__device__ void unpack(const Pack<T, N>& pack, float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = to_float(pack.values[i]);
}

template <typename T, int N>
__device__ Pack<T, N> make_pack(const float (&values)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.values[i] = from_float<T>(values[i]);
  return pack;
}

// Makes the compiler forget that it has already unpacked `pack`, so that it unpacks it again. Otherwise it would keep the
// floats in registers, and a row that stays in registers over all passes leaves no room for them.
template <typename T, int N>
__device__ void forget_unpacked(Pack<T, N>& pack) {
  if constexpr (sizeof(T) * N == 16) {
    auto* words = reinterpret_cast<unsigned*>(pack.values);
    asm volatile("" : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3]));
  }
}

// Σ of N values as a tree: short chains of dependent additions. N is 1 or a power of two.
template <int N>
__device__ float tree_sum(const float (&values)[N]) {
  float sums[N];
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] = values[i];
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

template <int N, typename T>
__device__ void load(const T* from, float (&values)[N]) {
  unpack(load_pack<N>(from), values);
}
template <int N, typename T>
__device__ void store(T* to, const float (&values)[N]) {
  store_pack(to, make_pack<T, N>(values));
}

}  // namespace plait::ops::cuda
