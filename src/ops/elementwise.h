// Small elementwise operations.
#pragma once

#include "core/stream.h"
#include "core/view.h"

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

}  // namespace plait::ops
