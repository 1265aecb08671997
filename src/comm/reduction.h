// Reductions on a host: of two elements, and of two arrays.
#pragma once

#include <cstdint>
#include <type_traits>

#include "comm/communicator.h"

namespace plait::comm {

// a + b, or the larger of the two (the number, if the other is NaN). Integers wrap around in two's complement, as NCCL's do;
// signed overflow would be undefined. Not for bf16: its callers decide when to round.
template <typename T>
T reduced(Reduction reduction, T a, T b) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int32_t>);
  if (reduction == Reduction::max) return a < b || a != a ? b : a;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a + b;
  }
}

// out[i] = a[i] + b[i], or the larger of the two (the number, if the other is NaN). `out` may be `a` or `b`.
// bf16 is added in float and rounded to nearest even, once per call.
void reduce_elements(DType dtype, Reduction reduction, void* out, const void* a, const void* b, std::int64_t count);

}  // namespace plait::comm
