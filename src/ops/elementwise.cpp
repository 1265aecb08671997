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

}  // namespace plait::ops
