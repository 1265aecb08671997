// FP8 operands of matrix products: e4m3 with one scale per tensor, found from the tensor as it is (Micikevicius et al. 2022,
// "FP8 Formats for Deep Learning"; "current scaling").
//
// A tensor x is kept as q = e4m3(x / scale) and stands for scale · q. The scale is the least power of two that brings the
// largest |x| to 448 or below, so dividing and multiplying by it rounds nothing. A tensor of zeros has the least scale there
// is. A tensor with a value that is not finite has an infinite scale, and no result computed from it is finite. Larger tensors
// have larger scales, so the scale of a tensor that is split over ranks is the largest of the parts' scales.
#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"
#include "ops/reduce.h"

namespace plait::ops {

// Floats per tensor's scale: 16 bytes, because cuBLASLt refuses a smaller alignment.
inline constexpr std::int64_t scale_floats = 4;

// x[rows, columns], quantized. Matrix units of GPUs take both operands with the summed index last, so a tensor that is summed
// over its rows is needed transposed. Either form may be left out (empty).
struct Quantized {
  View values;      // e4m3 [rows, columns]
  View transposed;  // e4m3 [columns, rows]
  View scale;       // f32 [scale_floats], of find_scale()
  explicit operator bool() const { return static_cast<bool>(scale); }
};

// The operand to quantize: x, or a function of it, in x's type, that is computed on the way and never written.
enum class OperandOf { x, gelu };

// scale[0] = the scale of x, scale[1] = the largest |x|, the rest 0. x: f32, bf16 or f64 on the host; bf16 on CUDA, where
// columns are a multiple of fp8_multiple, and rows too if the transposed form is wanted. Operations that write an operand can
// find its scale at the same time (their `scale` argument, with the same requirements).
void find_scale(StreamRef stream, OpContext& context, View x, View scale, OperandOf of = OperandOf::x);

// Writes the given forms with the scale found before. The sums are taken over x unrounded.
void quantize(StreamRef stream, OpContext& context, View x, const Quantized& out, const RowSums& sums = {},
              OperandOf of = OperandOf::x);

// The other form of a quantized tensor: transposed[columns, rows] from values[rows, columns], both e4m3.
void transpose(StreamRef stream, OpContext& context, View values, View transposed);

// find_scale() and quantize() of every x in a few kernels: for the weights of a bucket, each of which is too small to fill a
// GPU.
struct QuantizedTensor {
  View x;
  Quantized out;
};
void find_scales(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands);
void quantize_all(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands);

// Dims of FP8 operands on CUDA are multiples of this: 16-byte rows.
inline constexpr int fp8_multiple = 16;

// The scale for a largest magnitude `largest` >= 0, which is NaN if a value is.
float fp8_scale(double largest);

}  // namespace plait::ops
