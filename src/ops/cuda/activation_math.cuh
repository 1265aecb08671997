// GELU (tanh approximation), SiLU and their derivatives for device code. 16-bit T use the hardware's exponential and
// reciprocal: their relative errors, about 1e-6, are far below the rounding of the result.
#pragma once

namespace plait::ops::cuda {

// One instruction each; numbers below 2^-126 count as 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

inline constexpr float log2_e = 1.4426950408889634f;

template <typename T>
__device__ float sigmoid(float x) {
  if constexpr (sizeof(T) == 2) return fast_reciprocal(1.0f + fast_exp2(-log2_e * x));
  return 1.0f / (1.0f + expf(-x));
}

// (1 + tanh(u)) / 2 = sigmoid(2 u), so gelu(x) = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x³)).
inline constexpr float gelu_slope = 1.5957691216057308f;  // 2 sqrt(2/pi)
inline constexpr float gelu_cubic = 0.044715f;

template <typename T>
__device__ float gelu_sigmoid(float x, float square) {
  if constexpr (sizeof(T) == 2) {
    constexpr float slope = -log2_e * gelu_slope;
    return fast_reciprocal(1.0f + fast_exp2(x * fmaf(slope * gelu_cubic, square, slope)));
  }
  return sigmoid<T>(gelu_slope * (x + gelu_cubic * square * x));
}

template <typename T>
__device__ float gelu(float x) {
  return x * gelu_sigmoid<T>(x, x * x);
}

template <typename T>
__device__ float gelu_derivative(float x) {
  const float square = x * x, s = gelu_sigmoid<T>(x, square);
  return fmaf(fmaf(-s, s, s), x * fmaf(3.0f * gelu_slope * gelu_cubic, square, gelu_slope), s);
}

}  // namespace plait::ops::cuda
