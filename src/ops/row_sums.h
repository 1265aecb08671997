// What an operation that writes or reads a tensor can sum on the way: the tensor over its rows, for the gradient of a bias.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"

namespace plait::ops {

// Of a tensor [rows, columns]: out[columns] (+)= its sums over rows, in the tensor's type or f32 for bf16. Without `out` none
// are wanted.
struct RowSums {
  View out = {};
  bool accumulate = false;
};

// By itself: of x as it is there.
void sum_rows(StreamRef stream, OpContext& context, View x, const RowSums& sums);

}  // namespace plait::ops
