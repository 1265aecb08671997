// Elementary functions and sums for host kernels. All float versions vectorise for plain x86-64 where they are inlined (so
// always), and give the same bits on every run.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace plait::ops::cpu {

inline double exponential(double x) { return std::exp(x); }

// exp in float by range reduction and Cephes' polynomial, without a call, so that loops over it vectorise. Relative error at
// most 1e-7 in [-87, 87]; 0 below, exp(87) and not infinity above, so that its reciprocal is not subnormal; NaN stays NaN.
[[gnu::always_inline]] inline float exponential(float x) {
  const float high = x > 87.0f ? 87.0f : x;
  const float clamped = high < -87.0f ? -87.0f : high;
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  const float shifted = clamped * 1.44269504088896341f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127u) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

template <typename A>
[[gnu::always_inline]] inline A sigmoid(A x) {
  return A(1) / (A(1) + exponential(-x));
}

// gelu(x) = x/2 (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x³), written as x sigmoid(2u): no cancellation for x << 0.
template <typename A>
[[gnu::always_inline]] inline A gelu(A x) {
  const A two_u = A(1.5957691216057308) * (x + A(0.044715) * x * x * x);
  return x * sigmoid(two_u);
}
template <typename A>
[[gnu::always_inline]] inline A gelu_derivative(A x) {
  const A two_u = A(1.5957691216057308) * (x + A(0.044715) * x * x * x);
  const A two_u_derivative = A(1.5957691216057308) * (A(1) + A(3 * 0.044715) * x * x);
  const A s = sigmoid(two_u);
  return s + x * s * (A(1) - s) * two_u_derivative;
}

// Σ term(i) over [0, count), accumulated in Sum. Eight interleaved partial sums: a fixed order that vectorises.
template <typename Sum, typename Term>
Sum ordered_sum(std::int64_t count, Term term) {
  constexpr int lanes = 8;
  Sum partial[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int lane = 0; lane < lanes; ++lane) partial[lane] += static_cast<Sum>(term(i + lane));
  }
  for (int lane = 0; i < count; ++i, ++lane) partial[lane] += static_cast<Sum>(term(i));
  return ((partial[0] + partial[4]) + (partial[2] + partial[6])) + ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

// The largest term(i), ignoring NaNs (they show in the sums that follow).
template <typename A, typename Term>
A largest(std::int64_t count, Term term) {
  constexpr int lanes = 8;
  A most[lanes];
  for (A& value : most) value = term(0);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      const A value = term(i + lane);
      most[lane] = value > most[lane] ? value : most[lane];
    }
  }
  for (; i < count; ++i) most[0] = term(i) > most[0] ? term(i) : most[0];
  return *std::max_element(most, most + lanes);
}

}  // namespace plait::ops::cpu
