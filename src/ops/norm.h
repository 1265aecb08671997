// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019), fused with the additions before them.
//
// T is f32, f64 (host only) or bf16 for x, bias, residual, y, dy, dx, gamma, beta; statistics are f32 (f64 when T is f64);
// dgamma and dbeta have the gradient type G (T, or f32 for T = bf16).
#pragma once

#include <vector>

#include "core/choices.h"
#include "core/collective.h"
#include "core/stream.h"
#include "core/view.h"
#include "ops/attention_shape.h"
#include "ops/op_context.h"

namespace plait::ops {

using plait::NormKind;

// The contributions that tensor-parallel ranks push to one of them, plus the residual stream.
inline constexpr int most_norm_addends = link_collectives::most_ranks + 1;

// sum[rows, dim] = x[0] + x[1] + ... (+ bias[dim]), added in this order in float (double for f64) and rounded once;
// y = norm(sum) * gamma (+ beta)
//   x: 1 to most_norm_addends of them. residual: receives the sum, and may be one of x; required if there is something to add.
//   beta: LayerNorm only (empty for RMSNorm).
//   mean[rows] (LayerNorm only) and rstd[rows]: written for the backward pass.
//   scale: optional; receives find_scale() of y (ops/quantize.h), which must then meet find_scale()'s requirements.
struct NormForward {
  NormKind kind = NormKind::layer_norm;
  std::vector<View> x;
  View bias, gamma, beta;
  View residual, y, mean, rstd;
  float epsilon = 1e-5f;
  View scale = {};
};
void norm_forward(StreamRef stream, OpContext& context, const NormForward& args);

// dx[rows, dim] = dresidual[rows, dim] + gradient through the norm;  dgamma, dbeta (+)= their gradients.
//   x: the input that was normalised (the residual if there was one). dresidual: optional gradient arriving past the norm (the
//   residual branch); may alias dx.
//   dy: the gradient of y, or 1 to most_norm_addends parts of it, added in this order in float (double for f64) and rounded to
//   T once. None may alias dx. accumulate concerns dgamma and dbeta. Sums over rows have a fixed order: same bits on every run.
//   workspace: scratch instead of the context's, for a stream that the context does not serve; norm_workspace_bytes(dim).
//   scale: optional, as above, but of dx.
struct NormBackward {
  NormKind kind = NormKind::layer_norm;
  View x, gamma, mean, rstd;
  std::vector<View> dy;
  View dresidual;
  View dx, dgamma, dbeta;
  bool accumulate = false;
  View workspace = {};
  View scale = {};
};
std::size_t norm_workspace_bytes(std::int64_t dim);
void norm_backward(StreamRef stream, OpContext& context, const NormBackward& args);

// RMSNorm (Zhang & Sennrich 2019) of every query and key head of a packed qkv buffer by itself, over its head_dim elements,
// with one gain for all query heads and one for all key heads: Qwen 3, before RoPE. Value heads stay as they are.
//
// T is f32, f64 (host only) or bf16 for x, y, dqkv and the gains; gradients of the gains have a type G (T, or f32 for T =
// bf16).
//
// y = x / sqrt(mean square of the head + epsilon) * gain, for query and key heads; y = x for value heads.
//   x, y: packed as in attention.h. y may not be x, because backward reads x.
//   query_gain, key_gain: [head_dim].
struct QkNormForward {
  AttentionShape shape;
  View x, query_gain, key_gain;
  View y;
  float epsilon = 1e-6f;
};
void qk_norm_forward(StreamRef stream, const QkNormForward& args);

// dqkv holds the gradient of y on entry and that of x on return. Forward keeps only x; the mean squares are computed again.
//   dquery_gain, dkey_gain: overwritten. Sums over rows and heads have a fixed order: same bits on every run.
struct QkNormBackward {
  AttentionShape shape;
  View x, query_gain, key_gain;
  View dqkv;
  View dquery_gain, dkey_gain;
  float epsilon = 1e-6f;
};
void qk_norm_backward(StreamRef stream, OpContext& context, const QkNormBackward& args);

}  // namespace plait::ops
