// RMSNorm (Zhang & Sennrich 2019) of every query and key head of a packed qkv buffer by itself, over its head_dim elements,
// with one gain for all query heads and one for all key heads: Qwen 3, before RoPE. Value heads stay as they are.
//
// T is f32, f64 (host only) or bf16 for x, y, dqkv and the gains; gradients of the gains have a type G (T, or f32 for T =
// bf16).
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/attention_shape.h"
#include "ops/op_context.h"

namespace plait::ops {

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
