// Sums over rows, and to one number, in a fixed order (same bits on every run).
#pragma once

#include <span>

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"

namespace plait::ops {

// The sum of a tensor over its rows, for the gradient of a bias, made by an operation that writes or reads the tensor anyway:
// out[columns] (+)= the sums over rows of a tensor [rows, columns], in the tensor's type or f32 for bf16. Without `out` no sums
// are wanted.
struct RowSums {
  View out = {};
  bool accumulate = false;
};

// Sums the rows of x, as a separate operation.
void sum_rows(StreamRef stream, OpContext& context, View x, const RowSums& sums);

// out[0] (+)= scale * Σ values.  values f32 or f64, any shape; out of the same type.
void sum(StreamRef stream, OpContext& context, View values, View out, float scale, bool accumulate);

// out[0] = Σ values² over all of `parts`, 0 if there are none.  parts f32, f64 or bf16, all of one type; out f32 (f64 for f64).
// Summed in at least float, pairwise by blocks.
void sum_of_squares(StreamRef stream, OpContext& context, std::span<const View> parts, View out);

// out[0] (+)= the number of ignored targets, -1 (ops/cross_entropy.h).  targets i32, any shape; out f32 or f64, exact up to
// 2^24 in f32.
void count_ignored(StreamRef stream, View targets, View out, bool accumulate);

}  // namespace plait::ops
