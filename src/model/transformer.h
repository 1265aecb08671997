// The transformer, block by block. Covers the GPT-2 family (LayerNorm, learned positions, GELU, biases) and the Llama / Qwen
// family (RMSNorm, RoPE, SwiGLU, grouped KV heads), pre-norm residual blocks:
//
//   middle = x + attention(norm1(x));  output = middle + mlp(norm2(middle))
//
// The residual adds are fused into the epilogues of the two projections back into the stream, so a block's boundary is one
// tensor, which is also what a pipeline stage sends.
//
// Backward comes in two parts, as zero-bubble schedules need (Qi et al. 2023): backward_input carries the gradient to the
// block's input, backward_weight computes the weight gradients from what backward_input stashed. The gradients of the norms'
// gains and biases fall out of backward_input and are written there.
//
// Everything is enqueued on the given stream; nothing blocks.
#pragma once

#include "comm/communicator.h"
#include "core/stream.h"
#include "model/activations.h"
#include "model/parameters.h"
#include "ops/op_context.h"

namespace plait::model {

struct TransformerOptions {
  ModelShape shape;
  MicroBatchShape micro_batch;
  DType compute = DType::f32;
  Recompute recompute = Recompute::none;
};

// Tokens and targets of a micro-batch, i32, [rows]. Each block uses what it needs.
struct Batch {
  View tokens, targets;
};

class Transformer {
 public:
  // rope_table: as ops/rope.h describes, in device memory; empty for learned positions.
  Transformer(const TransformerOptions& options, View rope_table);

  const TransformerOptions& options() const { return options_; }

  // Block 0 reads batch.tokens; the others read input [rows, hidden]. The head writes losses and, when `train` is set, turns
  // its logits into their gradient, scaled by loss_scale.
  struct Forward {
    int block = 0;
    const BlockParameters* weights = nullptr;
    Batch batch;
    View input;
    BlockActivations* activations = nullptr;
    bool train = true;
    float loss_scale = 1.0f;
  };
  void forward(StreamRef stream, ops::OpContext& context, const Forward& args) const;

  // output_gradient: gradient of the block's output (none for the head). input_gradient receives the gradient of its input
  // (none for block 0) and may not alias output_gradient, which backward_weight still reads.
  struct Backward {
    int block = 0;
    const BlockParameters* weights = nullptr;
    const BlockParameters* weight_gradients = nullptr;
    Batch batch;
    View input;
    BlockActivations* activations = nullptr;
    BlockGradients* gradients = nullptr;
    View output_gradient, input_gradient;
    bool accumulate = false;  // false in the first micro-batch of a step: overwrites the weight gradients
  };
  void backward_input(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  void backward_weight(StreamRef stream, ops::OpContext& context, const Backward& args) const;

 private:
  ops::AttentionShape attention_shape() const;
  void norm(StreamRef stream, View x, View weight, View bias, View y, View mean, View rstd) const;
  void activation_function(StreamRef stream, View up, View act) const;
  void forward_attention(StreamRef stream, ops::OpContext& context, const BlockParameters& w, View input,
                         BlockActivations& a) const;
  void forward_up(StreamRef stream, ops::OpContext& context, const BlockParameters& w, BlockActivations& a) const;
  // Brings back what Recompute dropped of block args.block.
  void recompute(StreamRef stream, ops::OpContext& context, const Backward& args) const;

  TransformerOptions options_;
  View rope_table_;
};

}  // namespace plait::model
