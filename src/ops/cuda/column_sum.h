// Σ over rows of per-column values, in two stages of fixed order: blocks write partial sums [parts, columns] (f32) into the
// workspace, then finish_column_sums adds the parts. Serves the gradients of biases and of the norms' gains.
#pragma once

#include "core/stream.h"
#include "core/view.h"

namespace plait::ops::cuda {

// first[columns] (+)= Σ over parts of partial[0][part, columns]; `second`, which may be empty, likewise from partial[1]. Both
// are f32 or both bf16.
void finish_column_sums(StreamRef stream, const float* partial, std::int64_t parts, View first, View second, bool accumulate);

}  // namespace plait::ops::cuda
