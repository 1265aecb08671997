// Linear layers (matrix products with fused epilogues).
//
// Row-major throughout. dtype rules: x, w, y, residual, pre_activation, bias and their gradients have one compute type T (f32,
// f64 on the host only, or bf16); dw and dbias have the gradient type G, which is T or, for T = bf16, f32. Products accumulate
// in at least float; f32 on CUDA means full f32, not TF32.
//
// FP8: where both operands of a product are also given quantized (x8, w8 or dy8), the product is computed from their scale ·
// values. Each member says in which form. Everything else stays as without: the additions, activation functions, dbias and the
// type of the result. x, w and dy themselves then only supply type and shape, except that dbias reads dy.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"
#include "ops/quantize.h"

namespace plait::ops {

enum class Epilogue { none, gelu };  // gelu: the tanh approximation, as GPT-2 uses

// y[rows, out] = epilogue(x[rows, in] · w[out, in]ᵀ + bias[out]) + residual[rows, out]
//   bias, residual: optional (empty View). residual may be y itself; it may not be combined with Epilogue::gelu.
//   pre_activation[rows, out]: written with the value before gelu; required with Epilogue::gelu, else must be empty.
struct LinearForward {
  View x, w, bias, residual;
  View y, pre_activation;
  Epilogue epilogue = Epilogue::none;
  Quantized x8 = {}, w8 = {};  // both `values`
};
void linear_forward(StreamRef stream, OpContext& context, const LinearForward& args);

// dx[rows, in] = dy[rows, out] · w[out, in], overwritten; accumulate adds to dx instead.
// With pre_activation[rows, in] given, dx is further multiplied by gelu'(pre_activation): the gradient at the input of the
// gelu whose output was this layer's x. Not together with accumulate.
struct LinearBackwardInput {
  View dy, w, pre_activation;
  View dx;
  bool accumulate = false;
  Quantized dy8 = {}, w8 = {};  // dy's `values`, w's `transposed`
};
void linear_backward_input(StreamRef stream, OpContext& context, const LinearBackwardInput& args);

// dw[out, in] (+)= dy[rows, out]ᵀ · x[rows, in];  dbias[out] (+)= Σ over rows of dy. dbias optional.
// accumulate = false overwrites both, so the first micro-batch needs no zeroing.
struct LinearBackwardWeight {
  View dy, x;
  View dw, dbias;
  bool accumulate = false;
  Quantized dy8 = {}, x8 = {};  // both `transposed`; then x is not read, and dy only for dbias
};
void linear_backward_weight(StreamRef stream, OpContext& context, const LinearBackwardWeight& args);

}  // namespace plait::ops
