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

// How the tensor-parallel ranks share a tensor.
enum class Split {
  none,      // every rank has all of it, the same
  residual,  // part of the residual stream: rows, under sequence parallelism; else as `none`
  columns,   // a share of the columns (heads for qkv and lse, vocabulary for logits)
};

// What a tensor is for.
enum class TensorRole {
  internal,   // only its block uses it; its values can be checked and compared with those of other layouts
  output,     // the block's output, or the gradient of it: the neighbouring blocks use it too, so it is a buffer of its own
  workspace,  // partial sums of the ranks and temporaries: its values mean nothing by themselves
};

struct TensorSpec {
  std::string name;
  Shape shape;  // on this rank
  DType dtype = DType::f32;
  Keep keep = Keep::saved;
  Split split = Split::none;
  TensorRole role = TensorRole::internal;
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
};

// Activations of a block. `rows` = batch * sequence; `own rows` are this rank's rows of the residual stream, all of them
// without sequence parallelism. heads, qkv_dim, ffn, up_dim and vocab are this tensor-parallel rank's. `output` is the block's
// output, hence the next block's input: [own rows, hidden].
struct BlockActivations {
  View output;
  // transformer blocks
  View norm1_out, norm1_mean, norm1_rstd;  // [rows, hidden], [own rows], [own rows]
  View qkv;                                // [rows, qkv_dim], after RoPE
  View attention_out, lse;                 // [rows, heads * head_dim], [batch, heads, sequence]
  View middle;                             // residual stream between the halves, [own rows, hidden]
  View norm2_out, norm2_mean, norm2_rstd;
  View up;   // before the activation function, [rows, up_dim]
  View act;  // after it, [rows, ffn]
  // head
  View norm_out, norm_mean, norm_rstd;
  View logits;      // [rows, padded_vocab]; their gradient after a training forward
  View statistics;  // [tensor ranks, rows, 3], ops/cross_entropy.h
  View losses;      // [rows]
  // sequence parallelism: a product before it is summed over ranks, [rows, hidden]
  View partial;
};

// What the sizes of a block's tensors depend on, beside the block.
struct BlockSizes {
  ModelShape shape;  // of the whole model
  TensorSplit split;
  MicroBatchShape micro_batch;
  DType compute = DType::f32;
  Recompute recompute = Recompute::none;
  std::int64_t own_rows() const { return micro_batch.rows() / (split.sequence_parallel ? split.size : 1); }
};

// The members of BlockActivations that block `block` uses, in execution order, with where they live.
std::vector<TensorSpec> activation_specs(const BlockSizes& sizes, int block);

// The reverse: fills a BlockActivations from the memory of each spec, in the same order.
BlockActivations bind_activations(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);
// `below` with every member that `above` sets replaced by it.
BlockActivations overlay(BlockActivations below, const BlockActivations& above);

// Gradients within one block's backward. The stash is what backward_weight needs: it must stay until that has run. The gradient
// of the block's output and of `middle` belong to the residual stream: backward writes this rank's rows and gathers the rest.
struct BlockGradients {
  View output;  // stash: of BlockActivations::output, [rows, hidden]; its own rows are written by whoever computes them first
  View up;      // stash: of BlockActivations::up, [rows, up_dim]
  View middle;  // stash: of the residual stream between the halves, [rows, hidden]
  View qkv;     // stash
  View act;     // transient, SwiGLU only: [rows, ffn]
  View narrow;  // transient: [rows, max(hidden, heads * head_dim)]
};
// Of block `block`: the head has no output, the embedding nothing else.
std::vector<TensorSpec> gradient_specs(const BlockSizes& sizes, int block);
BlockGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);

// Named views of everything set, in execution order: for finding the first tensor that is not finite.
struct NamedView {
  std::string name;
  View view;
};
std::vector<NamedView> named(const BlockActivations& activations);
std::vector<NamedView> named(const BlockGradients& gradients);

}  // namespace plait::model
