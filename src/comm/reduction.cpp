#include "comm/reduction.h"

#include "core/error.h"

namespace plait::comm {
namespace {

// Sum: the type in which two elements are added. The reduction is fixed outside of the loop, so that the compiler can use
// vectors.
template <typename T, typename Sum, Reduction reduction>
void reduce_typed(void* out, const void* a, const void* b, std::int64_t count) {
  T* result = static_cast<T*>(out);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  for (std::int64_t i = 0; i < count; ++i)
    result[i] = static_cast<T>(reduced(reduction, static_cast<Sum>(left[i]), static_cast<Sum>(right[i])));
}

template <typename T, typename Sum = T>
void reduce_typed(Reduction reduction, void* out, const void* a, const void* b, std::int64_t count) {
  if (reduction == Reduction::sum) return reduce_typed<T, Sum, Reduction::sum>(out, a, b, count);
  reduce_typed<T, Sum, Reduction::max>(out, a, b, count);
}

}  // namespace

void reduce_elements(DType dtype, Reduction reduction, void* out, const void* a, const void* b, std::int64_t count) {
  switch (dtype) {
    case DType::f32: return reduce_typed<float>(reduction, out, a, b, count);
    case DType::f64: return reduce_typed<double>(reduction, out, a, b, count);
    case DType::bf16: return reduce_typed<BFloat16, float>(reduction, out, a, b, count);
    case DType::i32: return reduce_typed<std::int32_t>(reduction, out, a, b, count);
    case DType::u8:
    case DType::f16:
    case DType::e4m3: break;
  }
  throw InternalError("no reduction of " + std::string(to_string(dtype)) + " elements");
}

}  // namespace plait::comm
