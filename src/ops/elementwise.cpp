#include "ops/elementwise.h"

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {

void convert(StreamRef stream, View from, View to) {
  const ArgumentCheck check("convert", stream);
  check.compute_tensor("from", from, from.shape.rank());
  check.compute_tensor("to", to, to.shape.rank());
  check.same_elements("to", to, from.elements());
  return check.on_cuda() ? cuda::convert(stream, from, to) : cpu::convert(stream, from, to);
}

void add(StreamRef stream, View x, View y) {
  const ArgumentCheck check("add", stream);
  check.compute_tensor("x", x, x.shape.rank());
  check.compute_tensor("y", y, x.shape.rank());
  check.same_elements("y", y, x.elements());
  return check.on_cuda() ? cuda::add(stream, x, y) : cpu::add(stream, x, y);
}

void add_bias_residual(StreamRef stream, const AddBiasResidual& args) {
  const ArgumentCheck check("add_bias_residual", stream);
  check.compute_tensor("x", args.x, 2);
  check.optional_tensor("bias", args.bias, args.x.dtype, {args.x.shape[1]});
  check.optional_tensor("residual", args.residual, args.x.dtype, args.x.shape);
  check.tensor("y", args.y, args.x.dtype, args.x.shape);
  return check.on_cuda() ? cuda::add_bias_residual(stream, args) : cpu::add_bias_residual(stream, args);
}

void gelu_forward(StreamRef stream, OpContext& context, View x, View y, View scale) {
  const ArgumentCheck check("gelu_forward", stream, context);
  check.compute_tensor("x", x, x.shape.rank());
  check.tensor("y", y, x.dtype, x.shape);
  check.scale_of("y", y, scale);
  return check.on_cuda() ? cuda::gelu_forward(stream, context, x, y, scale) : cpu::gelu_forward(stream, context, x, y, scale);
}

void gelu_backward(StreamRef stream, OpContext& context, View x, View dy, View dx, View scale) {
  const ArgumentCheck check("gelu_backward", stream, context);
  check.compute_tensor("x", x, x.shape.rank());
  check.tensor("dy", dy, x.dtype, x.shape);
  check.tensor("dx", dx, x.dtype, x.shape);
  check.scale_of("dx", dx, scale);
  return check.on_cuda() ? cuda::gelu_backward(stream, context, x, dy, dx, scale)
                         : cpu::gelu_backward(stream, context, x, dy, dx, scale);
}

void swiglu_forward(StreamRef stream, OpContext& context, View gate_up, View y, View scale) {
  const ArgumentCheck check("swiglu_forward", stream, context);
  check.compute_tensor("gate_up", gate_up, 2);
  check.that(gate_up.shape[1] % 2 == 0, "gate_up", "of an even number of columns", describe(gate_up));
  check.tensor("y", y, gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2});
  check.distinct("y", y, "gate_up", gate_up);
  check.scale_of("y", y, scale);
  return check.on_cuda() ? cuda::swiglu_forward(stream, context, gate_up, y, scale)
                         : cpu::swiglu_forward(stream, context, gate_up, y, scale);
}

void swiglu_backward(StreamRef stream, OpContext& context, View gate_up, View dy, View dgate_up, View y, View scale) {
  const ArgumentCheck check("swiglu_backward", stream, context);
  check.compute_tensor("gate_up", gate_up, 2);
  check.that(gate_up.shape[1] % 2 == 0, "gate_up", "of an even number of columns", describe(gate_up));
  check.tensor("dy", dy, gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2});
  check.tensor("dgate_up", dgate_up, gate_up.dtype, gate_up.shape);
  check.distinct("dgate_up", dgate_up, "dy", dy);
  check.optional_tensor("y", y, dy.dtype, dy.shape);
  check.distinct("y", y, "gate_up", gate_up);
  check.distinct("y", y, "dgate_up", dgate_up);
  check.scale_of("dgate_up", dgate_up, scale);
  return check.on_cuda() ? cuda::swiglu_backward(stream, context, gate_up, dy, dgate_up, y, scale)
                         : cpu::swiglu_backward(stream, context, gate_up, dy, dgate_up, y, scale);
}

}  // namespace plait::ops
