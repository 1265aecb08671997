#include "ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {

float fp8_scale(double largest) {
  // The least exponent whose inverse is also a normal 32-bit number.
  constexpr int least = -126, most = 127;
  if (!std::isfinite(largest)) return std::numeric_limits<float>::infinity();
  int exponent = least;
  if (largest > 0) {
    const double fraction = std::frexp(largest / Float8::largest, &exponent);  // in [1/2, 1)
    if (fraction == 0.5) --exponent;
  }
  return exponent > most ? std::numeric_limits<float>::infinity() : std::ldexp(1.0f, std::max(exponent, least));
}

namespace {

void check_forms(const ArgumentCheck& check, const View& x, const Quantized& out) {
  check.fp8_operand("x", x);
  check.optional_tensor("out.values", out.values, DType::e4m3, x.shape);
  check.optional_tensor("out.transposed", out.transposed, DType::e4m3, {x.shape[1], x.shape[0]});
  check.that(!check.on_cuda() || !out.transposed || x.shape[0] % fp8_multiple == 0, "x",
             "of rows that are a multiple of 16, to be transposed", describe(x));
  check.tensor("out.scale", out.scale, DType::f32, {scale_floats});
}

}  // namespace

void find_scale(StreamRef stream, OpContext& context, View x, View scale, OperandOf of) {
  const ArgumentCheck check("find_scale", stream, context);
  check.fp8_operand("x", x);
  check.tensor("scale", scale, DType::f32, {scale_floats});
  return check.on_cuda() ? cuda::find_scale(stream, context, x, scale, of) : cpu::find_scale(stream, context, x, scale, of);
}

void quantize(StreamRef stream, OpContext& context, View x, const Quantized& out, const RowSums& sums, OperandOf of) {
  const ArgumentCheck check("quantize", stream, context);
  check_forms(check, x, out);
  if (sums.out) check.gradient("sums.out", sums.out, x.dtype, {x.shape[1]});
  return check.on_cuda() ? cuda::quantize(stream, context, x, out, sums, of) : cpu::quantize(stream, context, x, out, sums, of);
}

void transpose(StreamRef stream, OpContext& context, View values, View transposed) {
  const ArgumentCheck check("transpose", stream, context);
  check.that(values.shape.rank() == 2, "values", "a matrix", describe(values));
  const std::int64_t rows = values.shape[0], columns = values.shape[1];
  check.tensor("values", values, DType::e4m3, {rows, columns});
  check.tensor("transposed", transposed, DType::e4m3, {columns, rows});
  check.that(!check.on_cuda() || (rows % fp8_multiple == 0 && columns % fp8_multiple == 0), "values",
             "of dims that are multiples of 16", describe(values));
  return check.on_cuda() ? cuda::transpose(stream, context, values, transposed)
                         : cpu::transpose(stream, context, values, transposed);
}

void find_scales(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands) {
  const ArgumentCheck check("find_scales", stream, context);
  for (const QuantizedTensor& operand : operands) {
    check.fp8_operand("x", operand.x);
    check.tensor("scale", operand.out.scale, DType::f32, {scale_floats});
  }
  return check.on_cuda() ? cuda::find_scales(stream, context, operands) : cpu::find_scales(stream, context, operands);
}

void quantize_all(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands) {
  const ArgumentCheck check("quantize_all", stream, context);
  for (const QuantizedTensor& operand : operands) check_forms(check, operand.x, operand.out);
  return check.on_cuda() ? cuda::quantize_all(stream, context, operands) : cpu::quantize_all(stream, context, operands);
}

}  // namespace plait::ops
