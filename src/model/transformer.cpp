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

Transformer::Transformer(const BlockSizes& sizes, View rope_table, comm::Communicator& tensor_group)
    : sizes_(sizes), local_(sizes.shape.local(sizes.split.size)), rope_table_(rope_table), tensor_(sizes.split, tensor_group) {
  const bool wants_rope = local_.position == Position::rope;
  require(static_cast<bool>(rope_table) == wants_rope, "Transformer: a RoPE table exactly when positions are rotary");
}

ops::AttentionShape Transformer::attention_shape() const {
  return {sizes_.micro_batch.batch, sizes_.micro_batch.sequence, local_.heads, local_.kv_heads, local_.head_dim};
}

void Transformer::norm(StreamRef stream, View x, View weight, View bias, View y, View mean, View rstd) const {
  ops::norm_forward(stream, {.kind = local_.norm,
                             .x = x,
                             .delta = {},
                             .gamma = weight,
                             .beta = bias,
                             .residual = {},
                             .y = tensor_.own_rows(y),
                             .mean = mean,
                             .rstd = rstd,
                             .epsilon = local_.norm_epsilon});
  tensor_.gather(stream, y);
}

void Transformer::activation_function(StreamRef stream, View up, View act) const {
  if (local_.mlp == Mlp::swiglu) {
    ops::swiglu_forward(stream, up, act);
  } else {
    ops::gelu_forward(stream, up, act);
  }
}

void Transformer::forward_attention(StreamRef stream, ops::OpContext& context, const BlockParameters& w, View input,
                                    BlockActivations& a) const {
  norm(stream, input, w.norm1_weight, w.norm1_bias, a.norm1_out, a.norm1_mean, a.norm1_rstd);
  ops::linear_forward(
      stream, context,
      {.x = a.norm1_out, .w = w.qkv_weight, .bias = w.qkv_bias, .residual = {}, .y = a.qkv, .pre_activation = {}});
  if (rope_table_) ops::rope(stream, {.shape = attention_shape(), .table = rope_table_, .qkv = a.qkv});
  ops::attention_forward(stream, context, {.shape = attention_shape(), .qkv = a.qkv, .out = a.attention_out, .lse = a.lse});
  tensor_.row_linear(stream, context,
                     {.x = a.attention_out,
                      .w = w.output_weight,
                      .bias = w.output_bias,
                      .residual = input,
                      .scratch = a.partial,
                      .out = a.middle});
}

void Transformer::forward_up(StreamRef stream, ops::OpContext& context, const BlockParameters& w, BlockActivations& a) const {
  norm(stream, a.middle, w.norm2_weight, w.norm2_bias, a.norm2_out, a.norm2_mean, a.norm2_rstd);
  if (local_.mlp == Mlp::gelu) {
    ops::linear_forward(stream, context,
                        {.x = a.norm2_out,
                         .w = w.up_weight,
                         .bias = w.up_bias,
                         .residual = {},
                         .y = a.act,
                         .pre_activation = a.up,
                         .epilogue = ops::Epilogue::gelu});
  } else {
    ops::linear_forward(
        stream, context,
        {.x = a.norm2_out, .w = w.up_weight, .bias = w.up_bias, .residual = {}, .y = a.up, .pre_activation = {}});
    activation_function(stream, a.up, a.act);
  }
}

void Transformer::forward(StreamRef stream, ops::OpContext& context, const Forward& args) const {
  const BlockParameters& w = *args.weights;
  BlockActivations& a = *args.activations;
  if (args.block == 0) {
    const View partial = tensor_.partial(a.partial, a.output);
    ops::embedding_forward(stream, {.tokens = args.batch.tokens,
                                    .tokens_table = w.tokens,
                                    .positions_table = sizes_.split.rank == 0 ? w.positions : View(),  // once in the sum
                                    .y = partial,
                                    .sequence = sizes_.micro_batch.sequence,
                                    .first_token = tensor_.first_token(w.tokens.shape[0])});
    tensor_.sum(stream, partial, a.output);
  } else if (args.block == local_.head_block()) {
    norm(stream, args.input, w.norm_weight, w.norm_bias, a.norm_out, a.norm_mean, a.norm_rstd);
    ops::linear_forward(stream, context,
                        {.x = a.norm_out, .w = w.head_weight, .bias = {}, .residual = {}, .y = a.logits, .pre_activation = {}});
    tensor_.cross_entropy(stream, {.logits = a.logits,
                                   .targets = args.batch.targets,
                                   .statistics = a.statistics,
                                   .losses = a.losses,
                                   .vocab = local_.vocab,
                                   .scale = args.loss_scale,
                                   .write_gradient = args.train});
  } else {
    forward_attention(stream, context, w, args.input, a);
    forward_up(stream, context, w, a);
    tensor_.row_linear(
        stream, context,
        {.x = a.act, .w = w.down_weight, .bias = w.down_bias, .residual = a.middle, .scratch = a.partial, .out = a.output});
  }
}

void Transformer::recompute(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const BlockParameters& w = *args.weights;
  BlockActivations& a = *args.activations;
  switch (sizes_.recompute) {
    case Recompute::none: return;
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

View Transformer::column_input_gradient(StreamRef stream, ops::OpContext& context, View dy, View w, View narrow) const {
  const View partial(narrow.data, narrow.dtype, {sizes_.micro_batch.rows(), local_.hidden});
  const View own = tensor_.own_rows(partial);
  ops::linear_backward_input(stream, context, {.dy = dy, .w = w, .pre_activation = {}, .dx = partial});
  tensor_.sum(stream, partial, own);
  return own;
}

void Transformer::backward_input(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  if (args.block == 0) return;
  BlockGradients& g = *args.gradients;
  const BlockParameters& w = *args.weights;
  const BlockParameters& dw = *args.weight_gradients;
  BlockActivations& a = *args.activations;

  if (args.block == local_.head_block()) {
    const View dnorm = column_input_gradient(stream, context, a.logits, w.head_weight, g.narrow);
    ops::norm_backward(stream, context,
                       {.kind = local_.norm,
                        .x = args.input,
                        .gamma = w.norm_weight,
                        .mean = a.norm_mean,
                        .rstd = a.norm_rstd,
                        .dy = dnorm,
                        .dresidual = {},
                        .dx = args.input_gradient,
                        .dgamma = dw.norm_weight,
                        .dbeta = dw.norm_bias,
                        .accumulate = args.accumulate});
    return;
  }

  recompute(stream, context, args);
  tensor_.gather(stream, g.output);
  if (local_.mlp == Mlp::gelu) {
    ops::linear_backward_input(stream, context, {.dy = g.output, .w = w.down_weight, .pre_activation = a.up, .dx = g.up});
  } else {
    ops::linear_backward_input(stream, context, {.dy = g.output, .w = w.down_weight, .pre_activation = {}, .dx = g.act});
    ops::swiglu_backward(stream, a.up, g.act, g.up);
  }
  const View dnorm2 = column_input_gradient(stream, context, g.up, w.up_weight, g.narrow);
  ops::norm_backward(stream, context,
                     {.kind = local_.norm,
                      .x = a.middle,
                      .gamma = w.norm2_weight,
                      .mean = a.norm2_mean,
                      .rstd = a.norm2_rstd,
                      .dy = dnorm2,
                      .dresidual = tensor_.own_rows(g.output),
                      .dx = tensor_.own_rows(g.middle),
                      .dgamma = dw.norm2_weight,
                      .dbeta = dw.norm2_bias,
                      .accumulate = args.accumulate});
  tensor_.gather(stream, g.middle);

  const View dattention(g.narrow.data, g.narrow.dtype, {sizes_.micro_batch.rows(), local_.attention_dim()});
  ops::linear_backward_input(stream, context, {.dy = g.middle, .w = w.output_weight, .pre_activation = {}, .dx = dattention});
  ops::attention_backward(
      stream, context,
      {.shape = attention_shape(), .qkv = a.qkv, .out = a.attention_out, .lse = a.lse, .dout = dattention, .dqkv = g.qkv});
  if (rope_table_) ops::rope(stream, {.shape = attention_shape(), .table = rope_table_, .qkv = g.qkv, .inverse = true});
  const View dnorm1 = column_input_gradient(stream, context, g.qkv, w.qkv_weight, g.narrow);
  ops::norm_backward(stream, context,
                     {.kind = local_.norm,
                      .x = args.input,
                      .gamma = w.norm1_weight,
                      .mean = a.norm1_mean,
                      .rstd = a.norm1_rstd,
                      .dy = dnorm1,
                      .dresidual = tensor_.own_rows(g.middle),
                      .dx = args.input_gradient,
                      .dgamma = dw.norm1_weight,
                      .dbeta = dw.norm1_bias,
                      .accumulate = args.accumulate});
}

void Transformer::backward_weight(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const BlockParameters& dw = *args.weight_gradients;
  const BlockActivations& a = *args.activations;
  const BlockGradients& g = *args.gradients;
  const auto weight_gradient = [&](View dy, View x, View w, View bias) {
    ops::linear_backward_weight(stream, context, {.dy = dy, .x = x, .dw = w, .dbias = bias, .accumulate = args.accumulate});
  };
  if (args.block == 0) {
    tensor_.gather(stream, g.output);
    ops::embedding_backward(stream, context,
                            {.tokens = args.batch.tokens,
                             .dy = g.output,
                             .dtokens_table = dw.tokens,
                             .dpositions_table = dw.positions,
                             .sequence = sizes_.micro_batch.sequence,
                             .first_token = tensor_.first_token(dw.tokens.shape[0]),
                             .accumulate_tokens = args.accumulate_tokens,
                             .accumulate_positions = args.accumulate});
  } else if (args.block == local_.head_block()) {
    weight_gradient(a.logits, a.norm_out, dw.head_weight, {});
  } else {
    weight_gradient(g.output, a.act, dw.down_weight, dw.down_bias);
    weight_gradient(g.up, a.norm2_out, dw.up_weight, dw.up_bias);
    weight_gradient(g.middle, a.attention_out, dw.output_weight, dw.output_bias);
    weight_gradient(g.qkv, a.norm1_out, dw.qkv_weight, dw.qkv_bias);
  }
}

}  // namespace plait::model
