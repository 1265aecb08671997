#include "model/transformer.h"

#include "core/error.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/rope.h"

namespace plait::model {
namespace {

// The bias of the product back into the residual stream.
View output_bias(const SegmentParameters& w, SegmentKind kind) {
  if (kind == SegmentKind::attention) return w.output_bias;
  return kind == SegmentKind::mlp ? w.down_bias : View();
}

// The operands of the first and the last product of a pass: the scale, the transposed form if it is kept, and the values if
// they are gathered. Empty without FP8.
ops::Quantized operand(const View& scale, const View& transposed, const View& values = {}) {
  if (!scale) return {};
  return {.values = values, .transposed = transposed, .scale = scale};
}
ops::Quantized first(const NormActivations& norm, const SegmentActivations& a) {
  return operand(norm.scale, a.first_operand, norm.values);
}
ops::Quantized first(const SegmentGradients& g) { return operand(g.output_scale, g.first_operand, g.output_values); }
template <typename Tensors>
ops::Quantized last(const Tensors& of) {
  return operand(of.scale, of.last_operand);
}

// A tensor that exists only as an operand, as a view with its type and the operand's shape. Its data must not be read in that
// type.
View in_name_only(const View& tensor, const ops::Quantized& operand) {
  return operand.values ? View(operand.values.data, tensor.dtype, operand.values.shape) : tensor;
}

}  // namespace

Transformer::Transformer(const SegmentSizes& sizes, View rope_table, View operand_workspace)
    : sizes_(sizes),
      local_(sizes.shape.local(sizes.split.size)),
      rope_table_(rope_table),
      operand_workspace_(operand_workspace) {
  const bool wants_rope = local_.position == Position::rope;
  require(static_cast<bool>(rope_table) == wants_rope, "Transformer: a RoPE table exactly when positions are rotary");
}

void Transformer::add_residual(StreamRef stream, const Residual& args) const {
  const View bias = output_bias(*args.weights, local_.kind(args.segment));
  const bool nothing_to_add = !bias && !args.residual;
  if (nothing_to_add && args.sum.data == args.out.data) return;
  ops::add_bias_residual(stream, {.x = args.sum, .bias = bias, .residual = args.residual, .y = args.out});
}

ops::NormForward Transformer::norm_args(const Norm& args) const {
  return {.kind = local_.norm,
          .x = {args.input},
          .bias = {},
          .gamma = args.weights->norm_weight,
          .beta = args.weights->norm_bias,
          .residual = {},
          .y = args.norm.out,
          .mean = args.norm.mean,
          .rstd = args.norm.rstd,
          .epsilon = local_.norm_epsilon,
          .scale = args.norm.scale};
}

void Transformer::norm_forward(StreamRef stream, ops::OpContext& context, const Norm& args) const {
  ops::norm_forward(stream, context, norm_args(args));
}

void Transformer::add_and_norm(StreamRef stream, ops::OpContext& context, const std::vector<View>& sum,
                               const Residual& residual, const Norm& norm) const {
  ops::NormForward args = norm_args(norm);
  args.x = sum;
  if (residual.residual) args.x.push_back(residual.residual);
  args.bias = output_bias(*residual.weights, local_.kind(residual.segment));
  // An embedding may have nothing to add; the sum is then already in its place.
  const bool is_there = args.x.size() == 1 && !args.bias && sum.front().data == residual.out.data;
  if (!is_there) args.residual = residual.out;
  ops::norm_forward(stream, context, args);
}

void Transformer::norm_backward(StreamRef stream, ops::OpContext& context, const NormBackward& args) const {
  ops::norm_backward(stream, context,
                     {.kind = local_.norm,
                      .x = args.forward.input,
                      .gamma = args.forward.weights->norm_weight,
                      .mean = args.forward.norm.mean,
                      .rstd = args.forward.norm.rstd,
                      .dy = args.out_gradient,
                      .dresidual = args.residual_gradient,
                      .dx = args.input_gradient,
                      .dgamma = args.weight_gradients->norm_weight,
                      .dbeta = args.weight_gradients->norm_bias,
                      .accumulate = args.accumulate,
                      .workspace = args.workspace,
                      .scale = args.input_scale});
}

ops::Quantized Transformer::quantize(StreamRef stream, ops::OpContext& context, View x, ops::Quantized operand, View sums,
                                     ops::OperandOf of) const {
  if (operand.values) return operand;
  require(operand_bytes(x.shape) <= operand_workspace_.bytes(), "Transformer: the operand workspace is too small");
  operand.values = View(operand_workspace_.data, DType::e4m3, x.shape);
  ops::quantize(stream, context, x, operand, {.out = sums}, of);
  return operand;
}

void Transformer::product(StreamRef stream, ops::OpContext& context, ops::LinearForward args, const ops::Quantized& x,
                          const ops::Quantized& w8, ops::OperandOf of) const {
  if (sizes_.fp8) {
    args.x8 = quantize(stream, context, args.x, x, {}, of);
    args.x = in_name_only(args.x, x);
    args.w8 = w8;
  }
  ops::linear_forward(stream, context, args);
}

void Transformer::product(StreamRef stream, ops::OpContext& context, ops::LinearBackwardInput args, const ops::Quantized& dy,
                          View sums, const ops::Quantized& w8) const {
  if (sizes_.fp8) {
    args.dy8 = quantize(stream, context, args.dy, dy, sums);
    args.dy = in_name_only(args.dy, dy);
    args.w8 = w8;
  }
  ops::linear_backward_input(stream, context, args);
}

void Transformer::product(StreamRef stream, ops::OpContext& context, ops::LinearBackwardWeight args, const ops::Quantized& dy,
                          View sums, const ops::Quantized& x) const {
  args.dy8 = turned(stream, context, dy);
  args.x8 = turned(stream, context, x);
  args.dy = in_name_only(args.dy, dy);
  args.x = in_name_only(args.x, x);
  if (sums) {
    const auto collect = args.accumulate ? ops::add : ops::convert;
    collect(stream, sums, args.dbias);
    args.dbias = {};
  }
  ops::linear_backward_weight(stream, context, args);
}

void Transformer::keep_operand(StreamRef stream, ops::OpContext& context, View x, const ops::Quantized& operand,
                               ops::OperandOf of) const {
  if (sizes_.fp8 && !operand.values) ops::quantize(stream, context, x, operand, {}, of);
}

ops::Quantized Transformer::turned(StreamRef stream, ops::OpContext& context, ops::Quantized operand) const {
  if (!operand.values) return operand;
  const Shape& shape = operand.values.shape;
  operand.transposed = View(operand_workspace_.data, DType::e4m3, {shape[1], shape[0]});
  ops::transpose(stream, context, operand.values, operand.transposed);
  return operand;
}

void Transformer::find_scale(StreamRef stream, ops::OpContext& context, View operand, const ops::Quantized& of) const {
  if (sizes_.fp8) ops::find_scale(stream, context, operand, of.scale);
}

void Transformer::attention_input(StreamRef stream, const ops::AttentionShape& shape, const SegmentParameters& w, View starts,
                                  SegmentActivations& a) const {
  if (local_.qk_norm) {
    ops::qk_norm_forward(stream, {.shape = shape,
                                  .x = a.projected_qkv,
                                  .query_gain = w.query_gain,
                                  .key_gain = w.key_gain,
                                  .y = a.qkv,
                                  .epsilon = local_.norm_epsilon});
  }
  if (rope_table_) ops::rope(stream, {.shape = shape, .table = rope_table_, .starts = starts, .qkv = a.qkv});
}

void Transformer::forward_attention(StreamRef stream, ops::OpContext& context, int segment, const SegmentParameters& w,
                                    const ops::Quantized& qkv8, const NormActivations& norm, View starts,
                                    SegmentActivations& a) const {
  const ops::AttentionShape shape = attention_shape(sizes_, segment);
  const ops::LinearForward qkv{.x = norm.out,
                               .w = w.qkv_weight,
                               .bias = w.qkv_bias,
                               .residual = {},
                               .y = local_.qk_norm ? a.projected_qkv : a.qkv,
                               .pre_activation = {}};
  product(stream, context, qkv, first(norm, a), qkv8);
  attention_input(stream, shape, w, starts, a);
  ops::attention_forward(stream, context,
                         {.shape = shape, .qkv = a.qkv, .starts = starts, .out = a.attention_out, .lse = a.lse});
}

void Transformer::forward_up(StreamRef stream, ops::OpContext& context, const SegmentParameters& w, const ops::Quantized& up8,
                             const NormActivations& norm, SegmentActivations& a) const {
  const bool fused = fuses_gelu();
  const ops::LinearForward up{.x = norm.out,
                              .w = w.up_weight,
                              .bias = w.up_bias,
                              .residual = {},
                              .y = fused ? a.act : a.up,
                              .pre_activation = fused ? a.up : View(),
                              .epilogue = fused ? ops::Epilogue::gelu : ops::Epilogue::none};
  product(stream, context, up, first(norm, a), up8);
}

void Transformer::forward(StreamRef stream, ops::OpContext& context, const Forward& args) const {
  const SegmentParameters& w = *args.weights;
  SegmentActivations& a = *args.activations;
  const SegmentKind kind = local_.kind(args.segment);
  const ops::Quantized last_operand = last(a);
  const auto back_to_stream = [&](View x, View weight, const ops::Quantized& w8, ops::OperandOf of) {
    const ops::LinearForward back{.x = x,
                                  .w = weight,
                                  .bias = args.is_partial ? View() : output_bias(w, kind),
                                  .residual = args.is_partial ? View() : args.residual,
                                  .y = args.output,
                                  .pre_activation = {}};
    product(stream, context, back, last_operand, w8, of);
  };
  switch (kind) {
    case SegmentKind::embedding:
      ops::embedding_forward(stream, {.tokens = args.batch.tokens,
                                      .starts = args.batch.starts,
                                      .tokens_table = w.tokens,
                                      .positions_table = sizes_.split.rank == 0 ? w.positions : View(),  // once in the sum
                                      .y = args.output,
                                      .sequence = sizes_.micro_batch.sequence,
                                      .first_token = first_token(w.tokens.shape[0])});
      return;
    case SegmentKind::attention:
      if (args.range.begins()) {
        forward_attention(stream, context, args.segment, w, args.quantized.qkv, args.norm, args.batch.starts, a);
        find_scale(stream, context, a.attention_out, last_operand);
      }
      if (args.range.ends()) back_to_stream(a.attention_out, w.output_weight, args.quantized.output, ops::OperandOf::x);
      return;
    case SegmentKind::mlp:
      if (args.range.begins()) {
        forward_up(stream, context, w, args.quantized.up, args.norm, a);
        if (local_.mlp == Mlp::swiglu) ops::swiglu_forward(stream, context, a.up, a.act, last_operand.scale);
        if (rounds_gelu()) ops::find_scale(stream, context, a.up, last_operand.scale, ops::OperandOf::gelu);
      }
      if (args.range.ends()) back_to_stream(last_input(a), w.down_weight, args.quantized.down, last_operand_of());
      return;
    case SegmentKind::head:
      ops::linear_forward(
          stream, context,
          {.x = args.norm.out, .w = w.head_weight, .bias = {}, .residual = {}, .y = a.logits, .pre_activation = {}});
      return;
  }
}

View Transformer::own_statistics(View statistics) const {
  return statistics.rows(sizes_.split.rank, 1).reshaped({statistics.shape[1], statistics.shape[2]});
}

void Transformer::loss_statistics(StreamRef stream, const Loss& args) const {
  const std::int64_t first = first_token(args.logits.shape[1]);
  ops::cross_entropy_statistics(stream, {.logits = args.logits,
                                         .targets = args.targets,
                                         .statistics = own_statistics(args.statistics),
                                         .vocab = local_.vocab - first,
                                         .first_token = first});
}

void Transformer::loss(StreamRef stream, const Loss& args) const {
  if (!args.statistics) {  // whole rows are here, so one pass over them is enough
    ops::cross_entropy(stream, {.logits = args.logits,
                                .targets = args.targets,
                                .losses = args.losses,
                                .vocab = local_.vocab,
                                .scale = args.scale,
                                .write_gradient = args.train});
    return;
  }
  const std::int64_t first = first_token(args.logits.shape[1]);
  ops::cross_entropy_finish(stream, {.logits = args.logits,
                                     .targets = args.targets,
                                     .statistics = args.statistics,
                                     .losses = args.losses,
                                     .vocab = local_.vocab - first,
                                     .first_token = first,
                                     .scale = args.scale,
                                     .write_gradient = args.train});
}

void Transformer::recompute(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const SegmentParameters& w = *args.weights;
  SegmentActivations& a = *args.activations;
  const bool mlp = local_.kind(args.segment) == SegmentKind::mlp, swiglu = mlp && local_.mlp == Mlp::swiglu;
  switch (sizes_.recompute) {
    case Recompute::none: return;
    case Recompute::selective:
      keep_operand(stream, context, args.norm.out, first(args.norm, a));
      if (mlp && !swiglu) {
        if (!rounds_gelu()) ops::gelu_forward(stream, context, a.up, a.act);
        keep_operand(stream, context, last_input(a), last(a), last_operand_of());
      } else if (!mlp && local_.qk_norm) {
        attention_input(stream, attention_shape(sizes_, args.segment), w, args.batch.starts, a);
      }
      return;
    case Recompute::full:
      if (mlp) {
        forward_up(stream, context, w, args.quantized.up, args.norm, a);
        if (!swiglu) keep_operand(stream, context, last_input(a), last(a), last_operand_of());
      } else {
        forward_attention(stream, context, args.segment, w, args.quantized.qkv, args.norm, args.batch.starts, a);
        keep_operand(stream, context, a.attention_out, last(a));
      }
      return;
  }
}

void Transformer::backward_mlp(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  SegmentGradients& g = *args.gradients;
  const SegmentParameters& w = *args.weights;
  const SegmentActivations& a = *args.activations;
  const bool gelu = local_.mlp == Mlp::gelu;
  if (args.range.begins()) {
    const ops::LinearBackwardInput down{
        .dy = g.output, .w = w.down_weight, .pre_activation = fuses_gelu() ? a.up : View(), .dx = gelu ? g.up : g.act};
    product(stream, context, down, first(g), g.first_sums, args.quantized.down);
    if (gelu) {
      if (rounds_gelu()) ops::gelu_backward(stream, context, a.up, g.up, g.up, last(g).scale);
    } else {
      const bool again = sizes_.recompute != Recompute::none;
      ops::swiglu_backward(stream, context, a.up, g.act, g.up, again ? a.act : View(), last(g).scale);
      if (again) keep_operand(stream, context, a.act, last(a));
    }
  }
  if (!args.range.ends()) return;
  const ops::LinearBackwardInput up{.dy = g.up, .w = w.up_weight, .pre_activation = {}, .dx = args.norm_gradient};
  product(stream, context, up, last(g), g.last_sums, args.quantized.up);
}

// From the gradient of attention's output to that of the projection before it.
void Transformer::backward_scores(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  SegmentGradients& g = *args.gradients;
  const SegmentActivations& a = *args.activations;
  const ops::AttentionShape shape = attention_shape(sizes_, args.segment);
  const View starts = args.batch.starts;
  ops::attention_backward(stream, context,
                          {.shape = shape,
                           .qkv = a.qkv,
                           .starts = starts,
                           .out = a.attention_out,
                           .lse = a.lse,
                           .dout = g.attention,
                           .dqkv = g.qkv});
  if (rope_table_) ops::rope(stream, {.shape = shape, .table = rope_table_, .starts = starts, .qkv = g.qkv, .inverse = true});
  if (local_.qk_norm) {
    ops::qk_norm_backward(stream, context,
                          {.shape = shape,
                           .x = a.projected_qkv,
                           .query_gain = args.weights->query_gain,
                           .key_gain = args.weights->key_gain,
                           .dqkv = g.qkv,
                           .dquery_gain = g.query_gain,
                           .dkey_gain = g.key_gain,
                           .epsilon = local_.norm_epsilon});
  }
}

void Transformer::backward_attention(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  SegmentGradients& g = *args.gradients;
  const SegmentParameters& w = *args.weights;
  if (args.range.begins()) {
    const ops::LinearBackwardInput output{.dy = g.output, .w = w.output_weight, .pre_activation = {}, .dx = g.attention};
    product(stream, context, output, first(g), g.first_sums, args.quantized.output);
    backward_scores(stream, context, args);
    find_scale(stream, context, g.qkv, last(g));
  }
  if (!args.range.ends()) return;
  const ops::LinearBackwardInput qkv{.dy = g.qkv, .w = w.qkv_weight, .pre_activation = {}, .dx = args.norm_gradient};
  product(stream, context, qkv, last(g), g.last_sums, args.quantized.qkv);
}

void Transformer::backward_input(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const SegmentKind kind = local_.kind(args.segment);
  switch (kind) {
    case SegmentKind::embedding: return;
    case SegmentKind::attention:
    case SegmentKind::mlp:
      if (args.range.begins()) {
        recompute(stream, context, args);
        if (!args.scale_found) find_scale(stream, context, args.gradients->output, first(*args.gradients));
      }
      return kind == SegmentKind::mlp ? backward_mlp(stream, context, args) : backward_attention(stream, context, args);
    case SegmentKind::head:
      ops::linear_backward_input(
          stream, context,
          {.dy = args.activations->logits, .w = args.weights->head_weight, .pre_activation = {}, .dx = args.norm_gradient});
      return;
  }
}

void Transformer::backward_weight(StreamRef stream, ops::OpContext& context, const Backward& args) const {
  const SegmentParameters& dw = *args.weight_gradients;
  const SegmentActivations& a = *args.activations;
  const SegmentGradients& g = *args.gradients;
  // The weight gradient of forward's last product, whose output gradient backward's first product read; of_first is the
  // reverse. Under sequence parallelism each rank adds its own rows to the bias's gradient.
  const auto of_last = [&](View x, View w, View bias) {
    if (bias && sizes_.split.sequence_parallel) {
      ops::sum_rows(stream, context, sizes_.own_rows(g.output), {.out = bias, .accumulate = args.accumulate});
      bias = {};
    }
    product(stream, context, {.dy = g.output, .x = x, .dw = w, .dbias = bias, .accumulate = args.accumulate}, first(g),
            g.first_sums, last(a));
  };
  const auto of_first = [&](View dy, View w, View bias) {
    product(stream, context, {.dy = dy, .x = args.norm.out, .dw = w, .dbias = bias, .accumulate = args.accumulate}, last(g),
            g.last_sums, first(args.norm, a));
  };
  switch (local_.kind(args.segment)) {
    case SegmentKind::embedding:
      ops::embedding_backward(stream, context,
                              {.tokens = args.batch.tokens,
                               .starts = args.batch.starts,
                               .dy = g.output,
                               .dtokens_table = dw.tokens,
                               .dpositions_table = dw.positions,
                               .sequence = sizes_.micro_batch.sequence,
                               .first_token = first_token(dw.tokens.shape[0]),
                               .accumulate_tokens = args.accumulate_tokens,
                               .accumulate_positions = args.accumulate});
      return;
    case SegmentKind::attention:
      of_last(a.attention_out, dw.output_weight, dw.output_bias);
      of_first(g.qkv, dw.qkv_weight, dw.qkv_bias);
      if (local_.qk_norm) {
        const auto collect = args.accumulate ? ops::add : ops::convert;
        collect(stream, g.query_gain, dw.query_gain);
        collect(stream, g.key_gain, dw.key_gain);
      }
      return;
    case SegmentKind::mlp:
      of_last(last_input(a), dw.down_weight, dw.down_bias);
      of_first(g.up, dw.up_weight, dw.up_bias);
      return;
    case SegmentKind::head:
      ops::linear_backward_weight(
          stream, context,
          {.dy = a.logits, .x = args.norm.out, .dw = dw.head_weight, .dbias = {}, .accumulate = args.accumulate});
      return;
  }
}

}  // namespace plait::model
