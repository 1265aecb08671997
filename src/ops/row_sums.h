// The sum of a tensor over its rows, for the gradient of a bias, made by an operation that writes or reads the tensor anyway.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"

namespace plait::ops {

// out[columns] (+)= the sums over rows of a tensor [rows, columns], in the tensor's type or f32 for bf16. Without `out` no sums
// are wanted.
struct RowSums {
  View out = {};
  bool accumulate = false;
};

// Sums the rows of x, as a separate operation.
void sum_rows(StreamRef stream, OpContext& context, View x, const RowSums& sums);

}  // namespace plait::ops
