// GELU (tanh approximation), SiLU and their derivatives for device code.
#pragma once

namespace plait::ops::cuda {

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// (1 + tanh(u)) / 2 = sigmoid(2 u), so gelu(x) = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x³)).
inline constexpr float gelu_slope = 1.5957691216057308f;  // 2 sqrt(2/pi)
inline constexpr float gelu_cubic = 0.044715f;

__device__ inline float gelu(float x) { return x * sigmoid(gelu_slope * (x + gelu_cubic * x * x * x)); }

__device__ inline float gelu_derivative(float x) {
  const float s = sigmoid(gelu_slope * (x + gelu_cubic * x * x * x));
  return s + x * s * (1.0f - s) * gelu_slope * (1.0f + 3.0f * gelu_cubic * x * x);
}

}  // namespace plait::ops::cuda
