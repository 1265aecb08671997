// The transformer, segment by segment. Covers the GPT-2 family (LayerNorm, learned positions, GELU, biases) and the Llama /
// Qwen family (RMSNorm, RoPE, SwiGLU, grouped KV heads, normed queries and keys), pre-norm residual halves of a block:
//
//   middle = x + attention(norm(x));  output = middle + mlp(norm(middle))
//
// It computes and never communicates. Tensor-parallel ranks make the same calls with their parts of the weights (Shoeybi et al.
// 2019): a column-parallel product reads whole rows and computes this rank's columns, and the row-parallel product after it
// yields a partial sum. Between two segments, the operations work on this rank's rows of the residual stream (Korthikanti et
// al. 2022): add_residual() on the sum of those products, norm_forward() before the next segment. The caller sums and gathers
// rows between these. A rank that is alone has nothing to sum, and its product adds the residual itself.
//
// Backward comes in two parts, as zero-bubble schedules need (Qi et al. 2023): backward_input carries the gradient to the
// norm's output, backward_weight computes the weight gradients from what backward_input stashed. norm_backward takes the
// gradient on to the segment's input, and writes the gradients of the norm's gain and bias.
//
// Everything is enqueued on the given stream; nothing blocks.
#pragma once

#include "core/stream.h"
#include "model/activations.h"
#include "model/parameters.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/op_context.h"

namespace plait::model {

// Tokens and targets of a micro-batch, i32, [rows]; with separate documents, their `starts` (ops/attention_shape.h). Each
// segment reads the members it needs.
struct Batch {
  View tokens, targets, starts;
};

// Part `part` of a pass in `parts` parts (Segment::in_forward). The last part is the pass's last product; the first is
// everything before it, up to the scale of that product's operand. A single part is the whole pass.
struct PassRange {
  int part = 0, parts = 1;
  bool begins() const { return part == 0; }
  bool ends() const { return part + 1 == parts; }
};

class Transformer {
 public:
  // rope_table: as in ops/rope.h, in device memory; empty for learned positions. operand_workspace: operand_workspace_bytes(),
  // at a multiple of 256 bytes; like an OpContext, for one stream at a time.
  Transformer(const SegmentSizes& sizes, View rope_table, View operand_workspace = {});

  const SegmentSizes& sizes() const { return sizes_; }

  // Between segments, on this rank's rows: [own rows, hidden].

  // out = sum + bias + residual, for a segment whose product was summed over ranks without bias and residual. `residual` is the
  // segment's input, none for the embedding. sum may be out.
  struct Residual {
    int segment = 0;
    const SegmentParameters* weights = nullptr;
    View sum, residual, out;
  };
  void add_residual(StreamRef stream, const Residual& args) const;

  // norm.out and all other members have this rank's rows only. The scale is that of these rows.
  struct Norm {
    int segment = 0;
    const SegmentParameters* weights = nullptr;
    View input;  // of the segment
    NormActivations norm;
  };
  void norm_forward(StreamRef stream, ops::OpContext& context, const Norm& args) const;
  // add_residual() and norm_forward() in one pass: residual.out is norm.input. `sum` holds the addends, one for each rank, or
  // their sum alone; residual.sum is not read.
  void add_and_norm(StreamRef stream, ops::OpContext& context, const std::vector<View>& sum, const Residual& residual,
                    const Norm& norm) const;

  // input_gradient = residual_gradient + the gradient through the norm. out_gradient is the gradient of the norm's output, or
  // its addends, one for each rank. The scale is that of this rank's rows.
  struct NormBackward {
    Norm forward;
    const SegmentParameters* weight_gradients = nullptr;
    std::vector<View> out_gradient;
    View residual_gradient;  // of the segment's output; none for the head
    View input_gradient;
    View input_scale;         // SegmentGradients::output_scale of the segment before; or none
    View workspace;           // as ops::NormBackward
    bool accumulate = false;  // false in the first micro-batch of a step: overwrites the weight gradients
  };
  void norm_backward(StreamRef stream, ops::OpContext& context, const NormBackward& args) const;

  // Within a segment, on whole rows: [rows, hidden].

  // The embedding reads batch.tokens, other segments the norm. `output` receives the segment's output, or if `is_partial` this
  // rank's addend for add_residual(). The head writes its logits instead.
  struct Forward {
    int segment = 0;
    PassRange range = {};
    const SegmentParameters* weights = nullptr;
    QuantizedParameters quantized = {};  // of the weights, with SegmentSizes::fp8
    Batch batch;
    NormActivations norm;  // whole
    View residual;         // the segment's input; not needed if is_partial
    View output;
    bool is_partial = false;
    SegmentActivations* activations = nullptr;
  };
  void forward(StreamRef stream, ops::OpContext& context, const Forward& args) const;

  // Losses of a micro-batch from this rank's columns of its logits. In training, their scaled gradient replaces the logits.
  // With several ranks none holds whole rows of logits: each first writes its rows of `statistics` [tensor ranks, rows, 3]
  // (ops/cross_entropy.h), and loss() needs those of all ranks.
  struct Loss {
    View logits, targets, statistics, losses;
    bool train = true;
    float scale = 1.0f;
  };
  View own_statistics(View statistics) const;
  void loss_statistics(StreamRef stream, const Loss& args) const;
  void loss(StreamRef stream, const Loss& args) const;

  // gradients->output holds the gradient of the segment's output (none for the head), and its scale if `scale_found`; the other
  // members of gradients are written. norm_gradient receives the gradient of the norm's output, or this rank's addend of it
  // (none for the embedding).
  struct Backward {
    int segment = 0;
    PassRange range = {};  // of backward_input
    const SegmentParameters* weights = nullptr;
    QuantizedParameters quantized = {};  // as above
    const SegmentParameters* weight_gradients = nullptr;
    Batch batch;
    NormActivations norm;
    SegmentActivations* activations = nullptr;
    SegmentGradients* gradients = nullptr;
    bool scale_found = false;  // of gradients->output; else backward_input finds it
    View norm_gradient;
    bool accumulate = false;         // as above
    bool accumulate_tokens = false;  // the same for the embedding's table, to which a tied head may have written first
  };
  void backward_input(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  void backward_weight(StreamRef stream, ops::OpContext& context, const Backward& args) const;

 private:
  ops::NormForward norm_args(const Norm& args) const;
  std::int64_t first_token(std::int64_t rows) const { return sizes_.split.rank * rows; }  // of this rank's part of a vocabulary
  // Products of attention and MLP; with SegmentSizes::fp8 their operands are quantized. `w8`: the weight. The other operand
  // comes with its scale and, if its transposed form is kept for backward_weight, the memory for it. Products of forward and
  // backward_input quantize it, in both forms at once; those of backward_weight find it quantized. If it was gathered in
  // quantized form (`values`), the former have nothing to do, and the latter transpose it into the workspace.
  // `of`: the function of args.x that is rounded.
  void product(StreamRef stream, ops::OpContext& context, ops::LinearForward args, const ops::Quantized& x,
               const ops::Quantized& w8, ops::OperandOf of = ops::OperandOf::x) const;
  // `sums`: of dy over its rows; with FP8, backward_input writes them and backward_weight adds them to dbias.
  void product(StreamRef stream, ops::OpContext& context, ops::LinearBackwardInput args, const ops::Quantized& dy, View sums,
               const ops::Quantized& w8) const;
  void product(StreamRef stream, ops::OpContext& context, ops::LinearBackwardWeight args, const ops::Quantized& dy, View sums,
               const ops::Quantized& x) const;
  // Quantizes x, with `values` in the workspace; `sums` as ops::RowSums.
  ops::Quantized quantize(StreamRef stream, ops::OpContext& context, View x, ops::Quantized operand, View sums,
                          ops::OperandOf of = ops::OperandOf::x) const;
  // Writes only the transposed form. Does nothing without FP8 or if the operand was gathered.
  void keep_operand(StreamRef stream, ops::OpContext& context, View x, const ops::Quantized& operand,
                    ops::OperandOf of = ops::OperandOf::x) const;
  ops::Quantized turned(StreamRef stream, ops::OpContext& context, ops::Quantized operand) const;
  void find_scale(StreamRef stream, ops::OpContext& context, View operand, const ops::Quantized& of) const;
  // From the projection to attention's input: norms of query and key heads, rotation.
  void attention_input(StreamRef stream, const ops::AttentionShape& shape, const SegmentParameters& w, View starts,
                       SegmentActivations& a) const;
  // An attention segment up to its last product, and an MLP's first product, with GELU if that is fused.
  void forward_attention(StreamRef stream, ops::OpContext& context, int segment, const SegmentParameters& w,
                         const ops::Quantized& qkv8, const NormActivations& norm, View starts, SegmentActivations& a) const;
  void forward_up(StreamRef stream, ops::OpContext& context, const SegmentParameters& w, const ops::Quantized& up8,
                  const NormActivations& norm, SegmentActivations& a) const;
  // GELU is normally fused into the products around it. With FP8 operands the product before it would take longer with GELU,
  // while the one after it rounds its input anyway. So GELU is computed during that rounding, and its derivative in a pass of
  // its own, which also finds the scale of its output.
  bool fuses_gelu() const { return local_.mlp == Mlp::gelu && !sizes_.fp8; }
  bool rounds_gelu() const { return local_.mlp == Mlp::gelu && sizes_.fp8; }
  // The tensor from which an MLP's last product takes its input.
  const View& last_input(const SegmentActivations& a) const { return rounds_gelu() ? a.up : a.act; }
  ops::OperandOf last_operand_of() const { return rounds_gelu() ? ops::OperandOf::gelu : ops::OperandOf::x; }
  void backward_scores(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  void backward_attention(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  void backward_mlp(StreamRef stream, ops::OpContext& context, const Backward& args) const;
  // Recomputes the activations that Recompute dropped in an attention or MLP segment, except its norm and SwiGLU's output,
  // which its backward computes.
  void recompute(StreamRef stream, ops::OpContext& context, const Backward& args) const;

  SegmentSizes sizes_;
  ModelShape local_;  // this rank's part
  View rope_table_, operand_workspace_;
};

}  // namespace plait::model
