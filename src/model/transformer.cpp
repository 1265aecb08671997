#include "model/transformer.h"

#include "core/error.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace plait::model {

Transformer::Transformer(const TransformerOptions& options, View rope_table) : options_(options), rope_table_(rope_table) {
  const bool wants_rope = options.shape.position == Position::rope;
  require(static_cast<bool>(rope_table) == wants_rope, "Transformer: a RoPE table exactly when positions are rotary");
}

ops::AttentionShape Transformer::attention_shape() const {
  const ModelShape& s = options_.shape;
  return {options_.micro_batch.batch, options_.micro_batch.sequence, s.heads, s.kv_heads, s.head_dim};
}

void Transformer::norm(StreamRef stream, View x, View weight, View bias, View y, View mean, View rstd) const {
  const ModelShape& s = options_.shape;
  ops::norm_forward(stream, {.kind = s.norm, .x = x, .delta = {}, .gamma = weight, .beta = bias, .residual = {}, .y = y,
                             .mean = mean, .rstd = rstd, .epsilon = s.norm_epsilon});
}

void Transformer::activation_function(StreamRef stream, View up, View act) const {
  if (options_.shape.mlp == Mlp::swiglu) {
    ops::swiglu_forward(stream, up, act);
  } else {
    ops::gelu_forward(stream, up, act);
  }
}

void Transformer::forward_attention(StreamRef stream, ops::OpContext& context, const BlockParameters& w, View input,
                                    BlockActivations& a) const {
  norm(stream, input, w.norm1_weight, w.norm1_bias, a.norm1_out, a.norm1_mean, a.norm1_rstd);
  ops::linear_forward(stream, context, {.x = a.norm1_out, .w = w.qkv_weight, .bias = w.qkv_bias, .residual = {}, .y = a.qkv,
                                        .pre_activation = {}});
  if (rope_table_) ops::rope(stream, {.shape = attention_shape(), .table = rope_table_, .qkv = a.qkv});
  ops::attention_forward(stream, context, {.shape = attention_shape(), .qkv = a.qkv, .out = a.attention_out, .lse = a.lse});
  ops::linear_forward(stream, context, {.x = a.attention_out, .w = w.output_weight, .bias = w.output_bias, .residual = input,
                                        .y = a.middle, .pre_activation = {}});
}

void Transformer::forward_up(StreamRef stream, ops::OpContext& context, const BlockParameters& w, BlockActivations& a) const {
  norm(stream, a.middle, w.norm2_weight, w.norm2_bias, a.norm2_out, a.norm2_mean, a.norm2_rstd);
  if (options_.shape.mlp == Mlp::gelu) {
    ops::linear_forward(stream, context, {.x = a.norm2_out, .w = w.up_weight, .bias = w.up_bias, .residual = {}, .y = a.act,
                                          .pre_activation = a.up, .epilogue = ops::Epilogue::gelu});
  } else {
    ops::linear_forward(stream, context, {.x = a.norm2_out, .w = w.up_weight, .bias = w.up_bias, .residual = {}, .y = a.up,
                                          .pre_activation = {}});
    activation_function(stream, a.up, a.act);
  }
}

void Transformer::forward(StreamRef stream, ops::OpContext& context, const Forward& args) const {
  const ModelShape& s = options_.shape;
  const BlockParameters& w = *args.weights;
  BlockActivations& a = *args.activations;
  if (args.block == 0) {
    ops::embedding_forward(stream, {.tokens = args.batch.tokens, .tokens_table = w.tokens, .positions_table = w.positions,
                                    .y = a.output, .sequence = options_.micro_batch.sequence});
  } else if (args.block == s.head_block()) {
    norm(stream, args.input, w.norm_weight, w.norm_bias, a.norm_out, a.norm_mean, a.norm_rstd);
    ops::linear_forward(stream, context, {.x = a.norm_out, .w = w.head_weight, .bias = {}, .residual = {}, .y = a.logits,
                                          .pre_activation = {}});
    ops::cross_entropy(stream, {.logits = a.logits, .targets = args.batch.targets, .losses = a.losses, .vocab = s.vocab,
                                .scale = args.loss_scale, .write_gradient = args.train});
  } else {
    forward_attention(stream, context, w, args.input, a);
    forward_up(stream, context, w, a);
    ops::linear_forward(stream, context, {.x = a.act, .w = w.down_weight, .bias = w.down_bias, .residual = a.middle,
                                          .y = a.output, .pre_activation = {}});
  }
}

void Transformer::recompute(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const BlockParameters& w = *args.weights;
  BlockActivations& a = *args.activations;
  switch (options_.recompute) {
    case Recompute::none:
      return;
    case Recompute::selective:
      norm(stream, args.input, w.norm1_weight, w.norm1_bias, a.norm1_out, a.norm1_mean, a.norm1_rstd);
      norm(stream, a.middle, w.norm2_weight, w.norm2_bias, a.norm2_out, a.norm2_mean, a.norm2_rstd);
      activation_function(stream, a.up, a.act);
      return;
    case Recompute::full:
      forward_attention(stream, context, w, args.input, a);
      forward_up(stream, context, w, a);
      return;
  }
}

void Transformer::backward_input(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const ModelShape& s = options_.shape;
  if (args.block == 0) return;
  const BlockParameters& w = *args.weights;
  const BlockParameters& dw = *args.weight_gradients;
  BlockActivations& a = *args.activations;
  BlockGradients& g = *args.gradients;
  const Shape narrow{options_.micro_batch.rows(), s.hidden};
  const auto transient = [&](Shape shape) { return View(g.narrow.data, g.narrow.dtype, shape); };

  if (args.block == s.head_block()) {
    ops::linear_backward_input(stream, context, {.dy = a.logits, .w = w.head_weight, .pre_activation = {}, .dx = transient(narrow)});
    ops::norm_backward(stream, context, {.kind = s.norm, .x = args.input, .gamma = w.norm_weight, .mean = a.norm_mean,
                                         .rstd = a.norm_rstd, .dy = transient(narrow), .dresidual = {},
                                         .dx = args.input_gradient, .dgamma = dw.norm_weight, .dbeta = dw.norm_bias,
                                         .accumulate = args.accumulate});
    return;
  }

  recompute(stream, context, args);
  if (s.mlp == Mlp::gelu) {
    ops::linear_backward_input(stream, context, {.dy = args.output_gradient, .w = w.down_weight, .pre_activation = a.up, .dx = g.up});
  } else {
    ops::linear_backward_input(stream, context, {.dy = args.output_gradient, .w = w.down_weight, .pre_activation = {}, .dx = g.act});
    ops::swiglu_backward(stream, a.up, g.act, g.up);
  }
  ops::linear_backward_input(stream, context, {.dy = g.up, .w = w.up_weight, .pre_activation = {}, .dx = transient(narrow)});
  ops::norm_backward(stream, context, {.kind = s.norm, .x = a.middle, .gamma = w.norm2_weight, .mean = a.norm2_mean,
                                       .rstd = a.norm2_rstd, .dy = transient(narrow), .dresidual = args.output_gradient,
                                       .dx = g.middle, .dgamma = dw.norm2_weight, .dbeta = dw.norm2_bias,
                                       .accumulate = args.accumulate});

  const View attention_gradient = transient({options_.micro_batch.rows(), s.attention_dim()});
  ops::linear_backward_input(stream, context, {.dy = g.middle, .w = w.output_weight, .pre_activation = {}, .dx = attention_gradient});
  ops::attention_backward(stream, context, {.shape = attention_shape(), .qkv = a.qkv, .out = a.attention_out, .lse = a.lse,
                                            .dout = attention_gradient, .dqkv = g.qkv});
  if (rope_table_) ops::rope(stream, {.shape = attention_shape(), .table = rope_table_, .qkv = g.qkv, .inverse = true});
  ops::linear_backward_input(stream, context, {.dy = g.qkv, .w = w.qkv_weight, .pre_activation = {}, .dx = transient(narrow)});
  ops::norm_backward(stream, context, {.kind = s.norm, .x = args.input, .gamma = w.norm1_weight, .mean = a.norm1_mean,
                                       .rstd = a.norm1_rstd, .dy = transient(narrow), .dresidual = g.middle,
                                       .dx = args.input_gradient, .dgamma = dw.norm1_weight, .dbeta = dw.norm1_bias,
                                       .accumulate = args.accumulate});
}

void Transformer::backward_weight(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const ModelShape& s = options_.shape;
  const BlockParameters& dw = *args.weight_gradients;
  const BlockActivations& a = *args.activations;
  const auto weight_gradient = [&](View dy, View x, View w, View bias) {
    ops::linear_backward_weight(stream, context, {.dy = dy, .x = x, .dw = w, .dbias = bias, .accumulate = args.accumulate});
  };
  if (args.block == 0) {
    // A tied table already holds the head's gradient of this micro-batch.
    ops::embedding_backward(stream, context, {.tokens = args.batch.tokens, .dy = args.output_gradient, .dtokens_table = dw.tokens,
                                              .dpositions_table = dw.positions, .sequence = options_.micro_batch.sequence,
                                              .accumulate_tokens = s.tie_embeddings || args.accumulate,
                                              .accumulate_positions = args.accumulate});
  } else if (args.block == s.head_block()) {
    weight_gradient(a.logits, a.norm_out, dw.head_weight, {});
  } else {
    const BlockGradients& g = *args.gradients;
    weight_gradient(args.output_gradient, a.act, dw.down_weight, dw.down_bias);
    weight_gradient(g.up, a.norm2_out, dw.up_weight, dw.up_bias);
    weight_gradient(g.middle, a.attention_out, dw.output_weight, dw.output_bias);
    weight_gradient(g.qkv, a.norm1_out, dw.qkv_weight, dw.qkv_bias);
  }
}

}  // namespace plait::model
