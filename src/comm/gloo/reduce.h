// Element-wise reduction of two host arrays.
#pragma once

#include <cstdint>

#include "comm/communicator.h"

namespace plait::comm {

// out[i] = a[i] + b[i], or the larger of the two (the number, if the other is NaN). `out` may be `a` or `b`.
// bf16 is added in float and rounded to nearest even, once per call.
void reduce_elements(DType dtype, Reduction reduction, void* out, const void* a, const void* b, std::int64_t count);

}  // namespace plait::comm
