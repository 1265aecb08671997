#include "ops/elementwise.h"

#include "ops/argument_check.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace plait::ops {

void convert(StreamRef stream, View from, View to) {
  const ArgumentCheck check("convert", stream);
  check.compute_tensor("from", from, from.shape.rank());
  check.compute_tensor("to", to, to.shape.rank());
  check.same_elements("to", to, from.elements());
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::convert(stream, from, to);
  }
  cpu::convert(stream, from, to);
}

void add(StreamRef stream, View x, View y) {
  const ArgumentCheck check("add", stream);
  check.compute_tensor("x", x, x.shape.rank());
  check.tensor("y", y, x.dtype, x.shape);
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::add(stream, x, y);
  }
  cpu::add(stream, x, y);
}

}  // namespace plait::ops
