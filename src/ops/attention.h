// Causal self-attention with grouped KV heads (Ainslie et al. 2023), softmax scale 1/sqrt(head_dim), over all of a sequence or
// a window (Beltagy et al. 2020), within a document or across (ops/attention_shape.h).
//
// qkv is packed per token: [batch * sequence, (heads + 2 * kv_heads) * head_dim], first all query heads, then all key heads,
// then all value heads; dqkv likewise. Query head h reads KV head h / (heads / kv_heads).
// T = f32, f64 (host) or bf16. On CUDA, bf16 runs in cuDNN (cudnn-frontend's SDPA nodes) and f32 in our own kernels, which are
// meant for verification, not for speed.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/attention_shape.h"
#include "ops/op_context.h"

namespace plait::ops {

// Workspace bytes that attention needs for this shape (0 on the host). Callers check it against workspace_bytes when they plan
// memory; the ops throw InternalError when it does not fit.
std::size_t attention_workspace_bytes(OpContext& context, const AttentionShape& shape, DType dtype);

// out[batch * sequence, heads * head_dim];  lse[batch, heads, sequence]: log-sum-exp of the scaled scores, f32 (f64 for f64).
struct AttentionForward {
  AttentionShape shape;
  View qkv, starts;
  View out, lse;
};
void attention_forward(StreamRef stream, OpContext& context, const AttentionForward& args);

// dqkv is overwritten. dout may not alias dqkv.
struct AttentionBackward {
  AttentionShape shape;
  View qkv, starts, out, lse, dout;
  View dqkv;
};
void attention_backward(StreamRef stream, OpContext& context, const AttentionBackward& args);

}  // namespace plait::ops
