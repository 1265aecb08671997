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

Transformer::Transformer(const SegmentSizes& sizes, View rope_table, comm::Communicator& tensor_group)
    : sizes_(sizes), local_(sizes.shape.local(sizes.split.size)), rope_table_(rope_table), tensor_(sizes.split, tensor_group) {
  const bool wants_rope = local_.position == Position::rope;
  require(static_cast<bool>(rope_table) == wants_rope, "Transformer: a RoPE table exactly when positions are rotary");
}

ops::AttentionShape Transformer::attention_shape() const {
  return {sizes_.micro_batch.batch, sizes_.micro_batch.sequence, local_.heads, local_.kv_heads, local_.head_dim};
}

void Transformer::norm(StreamRef stream, const SegmentParameters& w, View input, SegmentActivations& a) const {
  ops::norm_forward(stream, {.kind = local_.norm,
                             .x = input,
                             .delta = {},
                             .gamma = w.norm_weight,
                             .beta = w.norm_bias,
                             .residual = {},
                             .y = tensor_.own_rows(a.norm_out),
                             .mean = a.norm_mean,
                             .rstd = a.norm_rstd,
                             .epsilon = local_.norm_epsilon});
  tensor_.gather(stream, a.norm_out);
}

void Transformer::activation_function(StreamRef stream, View up, View act) const {
  if (local_.mlp == Mlp::swiglu) {
    ops::swiglu_forward(stream, up, act);
  } else {
    ops::gelu_forward(stream, up, act);
  }
}

void Transformer::forward_attention(StreamRef stream, ops::OpContext& context, const SegmentParameters& w, View input,
                                    SegmentActivations& a) const {
  norm(stream, w, input, a);
  ops::linear_forward(
      stream, context,
      {.x = a.norm_out, .w = w.qkv_weight, .bias = w.qkv_bias, .residual = {}, .y = a.qkv, .pre_activation = {}});
  if (rope_table_) ops::rope(stream, {.shape = attention_shape(), .table = rope_table_, .qkv = a.qkv});
  ops::attention_forward(stream, context, {.shape = attention_shape(), .qkv = a.qkv, .out = a.attention_out, .lse = a.lse});
}

void Transformer::forward_up(StreamRef stream, ops::OpContext& context, const SegmentParameters& w, View input,
                             SegmentActivations& a) const {
  norm(stream, w, input, a);
  if (local_.mlp == Mlp::gelu) {
    ops::linear_forward(stream, context,
                        {.x = a.norm_out,
                         .w = w.up_weight,
                         .bias = w.up_bias,
                         .residual = {},
                         .y = a.act,
                         .pre_activation = a.up,
                         .epilogue = ops::Epilogue::gelu});
  } else {
    ops::linear_forward(
        stream, context,
        {.x = a.norm_out, .w = w.up_weight, .bias = w.up_bias, .residual = {}, .y = a.up, .pre_activation = {}});
    activation_function(stream, a.up, a.act);
  }
}

void Transformer::forward_head(StreamRef stream, ops::OpContext& context, const Forward& args) const {
  const SegmentParameters& w = *args.weights;
  SegmentActivations& a = *args.activations;
  norm(stream, w, args.input, a);
  ops::linear_forward(stream, context,
                      {.x = a.norm_out, .w = w.head_weight, .bias = {}, .residual = {}, .y = a.logits, .pre_activation = {}});
  tensor_.cross_entropy(stream, {.logits = a.logits,
                                 .targets = args.batch.targets,
                                 .statistics = a.statistics,
                                 .losses = a.losses,
                                 .vocab = local_.vocab,
                                 .scale = args.loss_scale,
                                 .write_gradient = args.train});
}

void Transformer::forward(StreamRef stream, ops::OpContext& context, const Forward& args) const {
  const SegmentParameters& w = *args.weights;
  SegmentActivations& a = *args.activations;
  const auto back_to_stream = [&](View x, View weight, View bias) {
    tensor_.row_linear(stream, context,
                       {.x = x, .w = weight, .bias = bias, .residual = args.input, .scratch = a.partial, .out = a.output});
  };
  switch (local_.kind(args.segment)) {
    case SegmentKind::embedding: {
      const View partial = tensor_.partial(a.partial, a.output);
      ops::embedding_forward(stream, {.tokens = args.batch.tokens,
                                      .tokens_table = w.tokens,
                                      .positions_table = sizes_.split.rank == 0 ? w.positions : View(),  // once in the sum
                                      .y = partial,
                                      .sequence = sizes_.micro_batch.sequence,
                                      .first_token = tensor_.first_token(w.tokens.shape[0])});
      tensor_.sum(stream, partial, a.output);
      return;
    }
    case SegmentKind::attention:
      forward_attention(stream, context, w, args.input, a);
      back_to_stream(a.attention_out, w.output_weight, w.output_bias);
      return;
    case SegmentKind::mlp:
      forward_up(stream, context, w, args.input, a);
      back_to_stream(a.act, w.down_weight, w.down_bias);
      return;
    case SegmentKind::head: forward_head(stream, context, args); return;
  }
}

void Transformer::recompute(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const SegmentParameters& w = *args.weights;
  SegmentActivations& a = *args.activations;
  const bool mlp = local_.kind(args.segment) == SegmentKind::mlp;
  switch (sizes_.recompute) {
    case Recompute::none: return;
    case Recompute::selective:
      norm(stream, w, args.input, a);
      if (mlp) activation_function(stream, a.up, a.act);
      return;
    case Recompute::full:
      if (mlp) {
        forward_up(stream, context, w, args.input, a);
      } else {
        forward_attention(stream, context, w, args.input, a);
      }
      return;
  }
}

void Transformer::norm_backward(StreamRef stream, ops::OpContext& context, const Backward& args, View dnorm,
                                View dresidual) const {
  const SegmentParameters& dw = *args.weight_gradients;
  const SegmentActivations& a = *args.activations;
  ops::norm_backward(stream, context,
                     {.kind = local_.norm,
                      .x = args.input,
                      .gamma = args.weights->norm_weight,
                      .mean = a.norm_mean,
                      .rstd = a.norm_rstd,
                      .dy = dnorm,
                      .dresidual = dresidual,
                      .dx = args.input_gradient,
                      .dgamma = dw.norm_weight,
                      .dbeta = dw.norm_bias,
                      .accumulate = args.accumulate});
}

View Transformer::column_input_gradient(StreamRef stream, ops::OpContext& context, View dy, View w, View narrow) const {
  const View partial(narrow.data, narrow.dtype, {sizes_.micro_batch.rows(), local_.hidden});
  const View own = tensor_.own_rows(partial);
  ops::linear_backward_input(stream, context, {.dy = dy, .w = w, .pre_activation = {}, .dx = partial});
  tensor_.sum(stream, partial, own);
  return own;
}

void Transformer::backward_mlp(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  SegmentGradients& g = *args.gradients;
  const SegmentParameters& w = *args.weights;
  const SegmentActivations& a = *args.activations;
  if (local_.mlp == Mlp::gelu) {
    ops::linear_backward_input(stream, context, {.dy = g.output, .w = w.down_weight, .pre_activation = a.up, .dx = g.up});
  } else {
    ops::linear_backward_input(stream, context, {.dy = g.output, .w = w.down_weight, .pre_activation = {}, .dx = g.act});
    ops::swiglu_backward(stream, a.up, g.act, g.up);
  }
  const View dnorm = column_input_gradient(stream, context, g.up, w.up_weight, g.narrow);
  norm_backward(stream, context, args, dnorm, tensor_.own_rows(g.output));
}

void Transformer::backward_attention(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  SegmentGradients& g = *args.gradients;
  const SegmentParameters& w = *args.weights;
  const SegmentActivations& a = *args.activations;
  const View dattention(g.narrow.data, g.narrow.dtype, {sizes_.micro_batch.rows(), local_.attention_dim()});
  ops::linear_backward_input(stream, context, {.dy = g.output, .w = w.output_weight, .pre_activation = {}, .dx = dattention});
  ops::attention_backward(
      stream, context,
      {.shape = attention_shape(), .qkv = a.qkv, .out = a.attention_out, .lse = a.lse, .dout = dattention, .dqkv = g.qkv});
  if (rope_table_) ops::rope(stream, {.shape = attention_shape(), .table = rope_table_, .qkv = g.qkv, .inverse = true});
  const View dnorm = column_input_gradient(stream, context, g.qkv, w.qkv_weight, g.narrow);
  norm_backward(stream, context, args, dnorm, tensor_.own_rows(g.output));
}

void Transformer::backward_input(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const SegmentKind kind = local_.kind(args.segment);
  switch (kind) {
    case SegmentKind::embedding: return;
    case SegmentKind::attention:
    case SegmentKind::mlp:
      recompute(stream, context, args);
      tensor_.gather(stream, args.gradients->output);
      if (kind == SegmentKind::mlp) {
        backward_mlp(stream, context, args);
      } else {
        backward_attention(stream, context, args);
      }
      return;
    case SegmentKind::head: {
      const View dnorm =
          column_input_gradient(stream, context, args.activations->logits, args.weights->head_weight, args.gradients->narrow);
      norm_backward(stream, context, args, dnorm, {});
      return;
    }
  }
}

void Transformer::backward_weight(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const SegmentParameters& dw = *args.weight_gradients;
  const SegmentActivations& a = *args.activations;
  const SegmentGradients& g = *args.gradients;
  const auto weight_gradient = [&](View dy, View x, View w, View bias) {
    ops::linear_backward_weight(stream, context, {.dy = dy, .x = x, .dw = w, .dbias = bias, .accumulate = args.accumulate});
  };
  switch (local_.kind(args.segment)) {
    case SegmentKind::embedding:
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
      return;
    case SegmentKind::attention:
      weight_gradient(g.output, a.attention_out, dw.output_weight, dw.output_bias);
      weight_gradient(g.qkv, a.norm_out, dw.qkv_weight, dw.qkv_bias);
      return;
    case SegmentKind::mlp:
      weight_gradient(g.output, a.act, dw.down_weight, dw.down_bias);
      weight_gradient(g.up, a.norm_out, dw.up_weight, dw.up_bias);
      return;
    case SegmentKind::head: weight_gradient(a.logits, a.norm_out, dw.head_weight, {}); return;
  }
}

}  // namespace plait::model
