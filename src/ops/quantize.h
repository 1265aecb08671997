// FP8 operands of matrix products: e4m3 with one scale per tensor, found from the tensor as it is (Micikevicius et al. 2022,
// "FP8 Formats for Deep Learning"; "current scaling").
//
// A tensor x is kept as q = e4m3(x / scale) and stands for scale · q. The scale is the least power of two that brings the
// largest |x| to 448 or below, so that dividing and multiplying by it rounds nothing. The scale of a tensor of zeros is the
// least there is; that of a tensor with a value that is not finite is infinite, and nothing computed from that is finite.
// Larger tensors have larger scales, so the scale of a tensor whose parts are on several ranks is the largest of the parts'
// scales.
#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"
#include "ops/row_sums.h"

namespace plait::ops {

// Of one tensor's scale: 16 bytes, as cuBLASLt refuses scales that are aligned to less.
inline constexpr std::int64_t scale_floats = 4;

// Of x[rows, columns]. Matrix units of GPUs take both operands with the index that is summed over last, so a tensor that is
// summed over its rows is needed transposed. Either form may be left out (empty).
struct Quantized {
  View values;      // e4m3 [rows, columns]
  View transposed;  // e4m3 [columns, rows]
  View scale;       // f32 [scale_floats], of find_scale()
  explicit operator bool() const { return static_cast<bool>(scale); }
};

// What an operand is: x, or a function of it, in x's type, that is made on the way and written nowhere.
enum class OperandOf { x, gelu };

// scale[0] = the scale of x, scale[1] = the largest |x|, the rest 0. x: f32, bf16 or f64 on the host; bf16 on CUDA, where
// columns are a multiple of fp8_multiple, and rows too where the transposed form is wanted. Operations that write an operand
// find its scale as they do (`scale`, as here).
void find_scale(StreamRef stream, OpContext& context, View x, View scale, OperandOf of = OperandOf::x);

// Writes the forms that are given, with the scale that is there. The sums are of x, not rounded.
void quantize(StreamRef stream, OpContext& context, View x, const Quantized& out, const RowSums& sums = {},
              OperandOf of = OperandOf::x);

// The other form of a quantized tensor: transposed[columns, rows] from values[rows, columns], both e4m3.
void transpose(StreamRef stream, OpContext& context, View values, View transposed);

// find_scale() of every x into its scale, and quantize() of every x into its forms, by few kernels: for the weights of a
// bucket, of which each by itself is too small to fill a GPU.
struct QuantizedTensor {
  View x;
  Quantized out;
};
void find_scales(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands);
void quantize_all(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands);

// Dims of FP8 operands on CUDA are multiples of this: 16-byte rows.
inline constexpr int fp8_multiple = 16;

// As above; `largest` >= 0, NaN where a value is.
float fp8_scale(double largest);

}  // namespace plait::ops
