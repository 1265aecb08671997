#include "ops/linear.h"

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

// Checks the quantized form of tensor[rows, columns] that a product reads.
void check_quantized(const ArgumentCheck& check, const char* name, const View& tensor, const Quantized& quantized,
                     View Quantized::* form) {
  const Shape& shape = tensor.shape;
  const bool turned = form == &Quantized::transposed;
  check.tensor(name, quantized.*form, DType::e4m3, turned ? Shape{shape[1], shape[0]} : shape);
  check.tensor(name, quantized.scale, DType::f32, {scale_floats});
  const auto fits = [&](std::int64_t dim) { return !check.on_cuda() || dim % fp8_multiple == 0; };
  check.that(fits(shape[0]) && fits(shape[1]), name, "of dims that are multiples of 16", describe(tensor));
}

}  // namespace

void linear_forward(StreamRef stream, OpContext& context, const LinearForward& args) {
  const ArgumentCheck check("linear_forward", stream, context);
  check.compute_tensor("x", args.x, 2);
  const DType dtype = args.x.dtype;
  check.compute_tensor("w", args.w, 2);
  const std::int64_t rows = args.x.shape[0], in = args.x.shape[1], out = args.w.shape[0];
  check.tensor("w", args.w, dtype, {out, in});
  check.optional_tensor("bias", args.bias, dtype, {out});
  check.optional_tensor("residual", args.residual, dtype, {rows, out});
  check.tensor("y", args.y, dtype, {rows, out});
  check.distinct("y", args.y, "x", args.x);
  if (args.epilogue == Epilogue::gelu) {
    check.tensor("pre_activation", args.pre_activation, dtype, {rows, out});
    check.absent("residual", args.residual, "with Epilogue::gelu");
    check.distinct("pre_activation", args.pre_activation, "y", args.y);
  } else {
    check.absent("pre_activation", args.pre_activation, "without Epilogue::gelu");
  }
  if (args.x8 || args.w8) {
    check_quantized(check, "x8", args.x, args.x8, &Quantized::values);
    check_quantized(check, "w8", args.w, args.w8, &Quantized::values);
  }
  return check.on_cuda() ? cuda::linear_forward(stream, context, args) : cpu::linear_forward(stream, context, args);
}

void linear_backward_input(StreamRef stream, OpContext& context, const LinearBackwardInput& args) {
  const ArgumentCheck check("linear_backward_input", stream, context);
  check.compute_tensor("dy", args.dy, 2);
  const DType dtype = args.dy.dtype;
  check.compute_tensor("w", args.w, 2);
  const std::int64_t rows = args.dy.shape[0], out = args.dy.shape[1], in = args.w.shape[1];
  check.tensor("w", args.w, dtype, {out, in});
  check.optional_tensor("pre_activation", args.pre_activation, dtype, {rows, in});
  check.tensor("dx", args.dx, dtype, {rows, in});
  check.distinct("dx", args.dx, "dy", args.dy);
  if (args.accumulate) check.absent("pre_activation", args.pre_activation, "with accumulate");
  if (args.dy8 || args.w8) {
    check_quantized(check, "dy8", args.dy, args.dy8, &Quantized::values);
    check_quantized(check, "w8", args.w, args.w8, &Quantized::transposed);
  }
  return check.on_cuda() ? cuda::linear_backward_input(stream, context, args)
                         : cpu::linear_backward_input(stream, context, args);
}

void linear_backward_weight(StreamRef stream, OpContext& context, const LinearBackwardWeight& args) {
  const ArgumentCheck check("linear_backward_weight", stream, context);
  check.compute_tensor("dy", args.dy, 2);
  const DType dtype = args.dy.dtype;
  check.compute_tensor("x", args.x, 2);
  const std::int64_t rows = args.dy.shape[0], out = args.dy.shape[1], in = args.x.shape[1];
  check.tensor("x", args.x, dtype, {rows, in});
  check.gradient("dw", args.dw, dtype, {out, in});
  check.optional_tensor("dbias", args.dbias, args.dw.dtype, {out});
  if (args.dy8 || args.x8) {
    check_quantized(check, "dy8", args.dy, args.dy8, &Quantized::transposed);
    check_quantized(check, "x8", args.x, args.x8, &Quantized::transposed);
  }
  return check.on_cuda() ? cuda::linear_backward_weight(stream, context, args)
                         : cpu::linear_backward_weight(stream, context, args);
}

}  // namespace plait::ops
