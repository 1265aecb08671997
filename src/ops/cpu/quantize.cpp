#include "ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

template <typename T>
T made(const T& x, OperandOf of) {
  return of == OperandOf::gelu ? store<T>(gelu(load(x))) : x;
}

template <typename T>
double largest_magnitude(const T* x, std::int64_t count, OperandOf of) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double magnitude = std::fabs(static_cast<double>(load(made(x[i], of))));
    if (!(magnitude <= largest)) largest = magnitude;  // a NaN too
    if (std::isnan(largest)) break;
  }
  return largest;
}

template <typename T>
void quantize_typed(const View& x, const Quantized& out, OperandOf of) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  const T* from = x.as<T>();
  const double inverse = 1.0 / static_cast<double>(out.scale.as<float>()[0]);  // exact
  auto* const values = out.values ? out.values.as<Float8>() : nullptr;
  auto* const transposed = out.transposed ? out.transposed.as<Float8>() : nullptr;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const Float8 value(static_cast<double>(load(made(from[row * columns + column], of))) * inverse);
      if (values) values[row * columns + column] = value;
      if (transposed) transposed[column * rows + row] = value;
    }
  }
}

}  // namespace

void find_scale(StreamRef stream, OpContext&, View x, View scale, OperandOf of) {
  enqueue(stream, x.dtype, [x, scale, of]<typename T>(std::type_identity<T>) {
    const double largest = largest_magnitude(x.as<T>(), x.elements(), of);
    float* const found = scale.as<float>();
    std::fill_n(found, scale_floats, 0.0f);
    found[0] = fp8_scale(largest);
    found[1] = std::isnan(largest) ? std::numeric_limits<float>::infinity() : static_cast<float>(largest);
  });
}

void quantize(StreamRef stream, OpContext& context, View x, const Quantized& out, const RowSums& sums, OperandOf of) {
  enqueue(stream, x.dtype, [x, out, of]<typename T>(std::type_identity<T>) { quantize_typed<T>(x, out, of); });
  if (sums.out) cpu::sum_rows(stream, context, x, sums);
}

void transpose(StreamRef stream, OpContext&, View values, View transposed) {
  stream.enqueue_host([values, transposed] {
    const std::int64_t rows = values.shape[0], columns = values.shape[1];
    const auto* const from = values.as<Float8>();
    auto* const to = transposed.as<Float8>();
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) to[column * rows + row] = from[row * columns + column];
    }
  });
}

void find_scales(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands) {
  for (const QuantizedTensor& o : operands) cpu::find_scale(stream, context, o.x, o.out.scale, OperandOf::x);
}

void quantize_all(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands) {
  for (const QuantizedTensor& o : operands) cpu::quantize(stream, context, o.x, o.out, {}, OperandOf::x);
}

}  // namespace plait::ops::cpu
