// What one block keeps between its forward and its backward pass, as names, shapes and views.
#pragma once

#include <string>
#include <vector>

#include "core/view.h"
#include "model/model_shape.h"

namespace plait::model {

// Sequences per micro-batch and tokens per sequence.
struct MicroBatchShape {
  std::int64_t batch = 0, sequence = 0;
  std::int64_t rows() const { return batch * sequence; }
};

// Where a tensor lives.
//   saved     kept from forward to backward-weight of the same micro-batch: one copy per block and micro-batch in flight
//   scratch   valid within one instruction only (recomputed when the backward needs it): one copy for all blocks
enum class Keep { saved, scratch };

struct TensorSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  Keep keep = Keep::saved;
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
};

// Activations of a block. `output` is the block's output, hence the next block's input: [rows, hidden].
struct BlockActivations {
  View output;
  // transformer blocks; `rows` = batch * sequence
  View norm1_out, norm1_mean, norm1_rstd;  // [rows, hidden], [rows], [rows]
  View qkv;                                // [rows, qkv_dim], after RoPE
  View attention_out, lse;                 // [rows, heads * head_dim], [batch, heads, sequence]
  View middle;                             // residual stream between the halves, [rows, hidden]
  View norm2_out, norm2_mean, norm2_rstd;
  View up;                                 // before the activation function, [rows, up_dim]
  View act;                                // after it, [rows, ffn]
  // head
  View norm_out, norm_mean, norm_rstd;
  View logits;                             // [rows, padded_vocab]; their gradient after a training forward
  View losses;                             // [rows]
};

// The members of BlockActivations that block `block` uses, in a fixed order, with where they live under `recompute`.
std::vector<TensorSpec> activation_specs(const ModelShape& shape, const MicroBatchShape& micro_batch, DType compute,
                                         Recompute recompute, int block);

// The other way round: fills a BlockActivations from memory for each spec, in the same order.
BlockActivations bind_activations(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);

// Gradients that travel within one block's backward. What backward_weight needs (stash) must stay until it has run.
struct BlockGradients {
  View up;          // stash: gradient of BlockActivations::up, [rows, up_dim]
  View middle;      // stash: of the residual stream between the halves
  View qkv;         // stash
  View act;         // transient, SwiGLU only: [rows, ffn]
  View narrow;      // transient: [rows, max(hidden, heads * head_dim)]
};
std::vector<TensorSpec> gradient_specs(const ModelShape& shape, const MicroBatchShape& micro_batch, DType compute);
BlockGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);

// Named views of everything set, in execution order: for finding the first tensor that is not finite.
struct NamedView {
  std::string name;
  View view;
};
std::vector<NamedView> named(const BlockActivations& activations);
std::vector<NamedView> named(const BlockGradients& gradients);

}  // namespace plait::model
