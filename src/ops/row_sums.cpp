#include "ops/row_sums.h"

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {

void sum_rows(StreamRef stream, OpContext& context, View x, const RowSums& sums) {
  const ArgumentCheck check("sum_rows", stream, context);
  check.compute_tensor("x", x, 2);
  check.gradient("sums.out", sums.out, x.dtype, {x.shape[1]});
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::sum_rows(stream, context, x, sums);
  }
  cpu::sum_rows(stream, context, x, sums);
}

}  // namespace plait::ops
