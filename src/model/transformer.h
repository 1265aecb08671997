// The transformer, segment by segment. Covers the GPT-2 family (LayerNorm, learned positions, GELU, biases) and the Llama /
// Qwen family (RMSNorm, RoPE, SwiGLU, grouped KV heads), pre-norm residual halves of a block:
//
//   middle = x + attention(norm(x));  output = middle + mlp(norm(middle))
//
// The residual adds are fused into the epilogues of the two projections back into the stream, so a segment's boundary is one
// tensor, which is also what a pipeline stage sends.
//
// Backward comes in two parts, as zero-bubble schedules need (Qi et al. 2023): backward_input carries the gradient to the
// segment's input, backward_weight computes the weight gradients from what backward_input stashed. The gradients of the norms'
// gains and biases fall out of backward_input and are written there.
//
// Every tensor-parallel rank makes the same calls with its part of the weights; what the ranks do together is in
// model/tensor_parallel.h. Everything is enqueued on the given stream; nothing blocks.
#pragma once

#include "core/stream.h"
#include "model/activations.h"
#include "model/parameters.h"
#include "model/tensor_parallel.h"
#include "ops/op_context.h"

namespace plait::model {

// Tokens and targets of a micro-batch, i32, [rows]. Each segment uses what it needs.
struct Batch {
  View tokens, targets;
};

class Transformer {
 public:
  // rope_table: as ops/rope.h describes, in device memory; empty for learned positions. tensor_group outlives this.
  Transformer(const SegmentSizes& sizes, View rope_table, comm::Communicator& tensor_group);

  const SegmentSizes& sizes() const { return sizes_; }
  const TensorParallel& tensor_parallel() const { return tensor_; }

  // Block 0 reads batch.tokens; the others read input [own rows, hidden]. The head writes losses and, when `train` is set,
  // turns its logits into their gradient, scaled by loss_scale.
  struct Forward {
    int segment = 0;
    const SegmentParameters* weights = nullptr;
    Batch batch;
    View input;
    SegmentActivations* activations = nullptr;
    bool train = true;
    float loss_scale = 1.0f;
  };
  void forward(StreamRef stream, ops::OpContext& context, const Forward& args) const;

  // gradients->output holds the gradient of the segment's output in its own rows (none for the head); the rest of it and of
  // gradients is written. input_gradient, own rows, receives the gradient of the segment's input (none for segment 0).
  struct Backward {
    int segment = 0;
    const SegmentParameters* weights = nullptr;
    const SegmentParameters* weight_gradients = nullptr;
    Batch batch;
    View input;
    SegmentActivations* activations = nullptr;
    SegmentGradients* gradients = nullptr;
    View input_gradient;
    bool accumulate = false;         // false in the first micro-batch of a step: overwrites the weight gradients
    bool accumulate_tokens = false;  // the same for the embedding's table, which a tied head may have written first
  };
  void backward_input(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  void backward_weight(StreamRef stream, ops::OpContext& context, const Backward& args) const;

 private:
  ops::AttentionShape attention_shape() const;
  // Of the segment's input; its own rows are computed and the rest gathered.
  void norm(StreamRef stream, const SegmentParameters& w, View input, SegmentActivations& a) const;
  // The gradient of that: `dnorm`, this rank's rows, and `dresidual` on its way past the segment.
  void norm_backward(StreamRef stream, ops::OpContext& context, const Backward& args, View dnorm, View dresidual) const;
  void backward_attention(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  void backward_mlp(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  void activation_function(StreamRef stream, View up, View act) const;
  // An attention segment up to its last product, and an MLP segment up to that.
  void forward_attention(StreamRef stream, ops::OpContext& context, const SegmentParameters& w, View input,
                         SegmentActivations& a) const;
  void forward_up(StreamRef stream, ops::OpContext& context, const SegmentParameters& w, View input,
                  SegmentActivations& a) const;
  void forward_head(StreamRef stream, ops::OpContext& context, const Forward& args) const;
  // Brings back what Recompute dropped of segment args.segment.
  void recompute(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  // dx of the column-parallel product whose dy this is, summed over ranks: this rank's rows of it, in `narrow`.
  View column_input_gradient(StreamRef stream, ops::OpContext& context, View dy, View w, View narrow) const;

  SegmentSizes sizes_;
  ModelShape local_;  // this rank's part
  View rope_table_;
  TensorParallel tensor_;
};

}  // namespace plait::model
