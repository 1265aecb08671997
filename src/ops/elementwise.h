// Elementwise operations: conversions, additions, activation functions.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"

namespace plait::ops {

// to[i] = from[i], converted between f32, f64 (host only) and bf16 (round to nearest even).
void convert(StreamRef stream, View from, View to);

// y[i] += x[i], for the types that convert takes; summed in the wider one and rounded once.
void add(StreamRef stream, View x, View y);

// y[rows, dim] = x[rows, dim] + bias[dim] + residual[rows, dim], all of one type, summed in float (double for f64) and rounded
// once. bias, residual: optional (empty View). y may be x or residual. It replaces linear_forward's epilogue for products that
// must first be summed over ranks.
struct AddBiasResidual {
  View x, bias, residual;
  View y;
};
void add_bias_residual(StreamRef stream, const AddBiasResidual& args);

// GELU (tanh approximation, Hendrycks & Gimpel 2016) and SwiGLU (Shazeer 2020) as separate passes. Linear layers fuse GELU into
// their epilogues where that is faster; the separate forward pass serves FP8 and activation recompute.
//
// `scale`, where given, receives find_scale() of the output (dx, y or dgate_up) without reading it again. The tensors must then
// meet find_scale()'s requirements.

// y = gelu(x), elementwise. y may alias x.
void gelu_forward(StreamRef stream, OpContext& context, View x, View y, View scale = {});
// dx = dy * gelu'(x), elementwise. dx may alias dy.
void gelu_backward(StreamRef stream, OpContext& context, View x, View dy, View dx, View scale = {});

// gate_up[rows, 2 * dim] holds gate in columns [0, dim) and up in [dim, 2 dim).  y[rows, dim] = silu(gate) * up
void swiglu_forward(StreamRef stream, OpContext& context, View gate_up, View y, View scale = {});
// dgate_up[rows, 2 * dim] from dy[rows, dim]; dgate_up may alias gate_up. `y`, if given, receives the forward output again,
// with the same bits, for callers that did not keep it. It may alias dy.
void swiglu_backward(StreamRef stream, OpContext& context, View gate_up, View dy, View dgate_up, View y = {}, View scale = {});

}  // namespace plait::ops
