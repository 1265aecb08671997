#include "comm/gloo/reduce.h"

#include "core/error.h"

namespace plait::comm {
namespace {

template <typename T>
T sum_of(T a, T b) {
  return a + b;
}
// Two's complement wrap-around, as NCCL does; signed overflow would be undefined.
template <>
std::int32_t sum_of(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
template <>
BFloat16 sum_of(BFloat16 a, BFloat16 b) {
  return BFloat16(static_cast<float>(a) + static_cast<float>(b));
}

template <typename T>
T max_of(T a, T b) {
  return a < b || a != a ? b : a;
}
template <>
BFloat16 max_of(BFloat16 a, BFloat16 b) {
  return BFloat16(max_of(static_cast<float>(a), static_cast<float>(b)));
}

template <typename T>
void reduce_typed(Reduction reduction, void* out, const void* a, const void* b, std::int64_t count) {
  T* result = static_cast<T*>(out);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  if (reduction == Reduction::sum) {
    for (std::int64_t i = 0; i < count; ++i) result[i] = sum_of<T>(left[i], right[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) result[i] = max_of<T>(left[i], right[i]);
  }
}

}  // namespace

void reduce_elements(DType dtype, Reduction reduction, void* out, const void* a, const void* b, std::int64_t count) {
  switch (dtype) {
    case DType::f32: return reduce_typed<float>(reduction, out, a, b, count);
    case DType::f64: return reduce_typed<double>(reduction, out, a, b, count);
    case DType::bf16: return reduce_typed<BFloat16>(reduction, out, a, b, count);
    case DType::i32: return reduce_typed<std::int32_t>(reduction, out, a, b, count);
    case DType::u8: break;
  }
  throw InternalError("no reduction of " + std::string(to_string(dtype)) + " elements");
}

}  // namespace plait::comm
