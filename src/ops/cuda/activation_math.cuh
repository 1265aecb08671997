// GELU (tanh approximation), SiLU and their derivatives for device code. Of 16-bit T the hardware's exponential and reciprocal
// are used: their errors, some 1e-6 of a value, are far below the rounding of the result.
#pragma once

namespace plait::ops::cuda {

template <typename T>
__device__ float sigmoid(float x) {
  if constexpr (sizeof(T) == 2) return __fdividef(1.0f, 1.0f + __expf(-x));
  return 1.0f / (1.0f + expf(-x));
}

// (1 + tanh(u)) / 2 = sigmoid(2 u), so gelu(x) = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x³)).
inline constexpr float gelu_slope = 1.5957691216057308f;  // 2 sqrt(2/pi)
inline constexpr float gelu_cubic = 0.044715f;

template <typename T>
__device__ float gelu(float x) {
  return x * sigmoid<T>(gelu_slope * (x + gelu_cubic * x * x * x));
}

template <typename T>
__device__ float gelu_derivative(float x) {
  const float s = sigmoid<T>(gelu_slope * (x + gelu_cubic * x * x * x));
  return s + x * s * (1.0f - s) * gelu_slope * (1.0f + 3.0f * gelu_cubic * x * x);
}

}  // namespace plait::ops::cuda
