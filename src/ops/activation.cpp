#include "ops/activation.h"

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {

void gelu_forward(StreamRef stream, View x, View y) {
  const ArgumentCheck check("gelu_forward", stream);
  check.compute_tensor("x", x, x.shape.rank());
  check.tensor("y", y, x.dtype, x.shape);
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::gelu_forward(stream, x, y);
  }
  cpu::gelu_forward(stream, x, y);
}

void gelu_backward(StreamRef stream, View x, View dy, View dx) {
  const ArgumentCheck check("gelu_backward", stream);
  check.compute_tensor("x", x, x.shape.rank());
  check.tensor("dy", dy, x.dtype, x.shape);
  check.tensor("dx", dx, x.dtype, x.shape);
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::gelu_backward(stream, x, dy, dx);
  }
  cpu::gelu_backward(stream, x, dy, dx);
}

void swiglu_forward(StreamRef stream, View gate_up, View y) {
  const ArgumentCheck check("swiglu_forward", stream);
  check.compute_tensor("gate_up", gate_up, 2);
  check.that(gate_up.shape[1] % 2 == 0, "gate_up", "of an even number of columns", describe(gate_up));
  check.tensor("y", y, gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2});
  check.distinct("y", y, "gate_up", gate_up);
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::swiglu_forward(stream, gate_up, y);
  }
  cpu::swiglu_forward(stream, gate_up, y);
}

void swiglu_backward(StreamRef stream, View gate_up, View dy, View dgate_up, View y) {
  const ArgumentCheck check("swiglu_backward", stream);
  check.compute_tensor("gate_up", gate_up, 2);
  check.that(gate_up.shape[1] % 2 == 0, "gate_up", "of an even number of columns", describe(gate_up));
  check.tensor("dy", dy, gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2});
  check.tensor("dgate_up", dgate_up, gate_up.dtype, gate_up.shape);
  check.distinct("dgate_up", dgate_up, "dy", dy);
  check.optional_tensor("y", y, dy.dtype, dy.shape);
  check.distinct("y", y, "gate_up", gate_up);
  check.distinct("y", y, "dgate_up", dgate_up);
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::swiglu_backward(stream, gate_up, dy, dgate_up, y);
  }
  cpu::swiglu_backward(stream, gate_up, dy, dgate_up, y);
}

}  // namespace plait::ops
