#include "model/activations.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "ops/quantize.h"

namespace plait::model {
namespace {

template <typename Struct>
struct Member {
  const char* name;
  View Struct::* view;
};

// In execution order.
constexpr std::array norm_members = {
    Member<NormActivations>{"norm_out", &NormActivations::out},
    Member<NormActivations>{"norm_mean", &NormActivations::mean},
    Member<NormActivations>{"norm_rstd", &NormActivations::rstd},
    Member<NormActivations>{"norm_scale", &NormActivations::scale},
    Member<NormActivations>{"norm_values", &NormActivations::values},
};

constexpr std::array activation_members = {
    Member<SegmentActivations>{"projected_qkv", &SegmentActivations::projected_qkv},
    Member<SegmentActivations>{"qkv", &SegmentActivations::qkv},
    Member<SegmentActivations>{"attention_out", &SegmentActivations::attention_out},
    Member<SegmentActivations>{"lse", &SegmentActivations::lse},
    Member<SegmentActivations>{"up", &SegmentActivations::up},
    Member<SegmentActivations>{"act", &SegmentActivations::act},
    Member<SegmentActivations>{"scale", &SegmentActivations::scale},
    Member<SegmentActivations>{"first_operand", &SegmentActivations::first_operand},
    Member<SegmentActivations>{"last_operand", &SegmentActivations::last_operand},
    Member<SegmentActivations>{"logits", &SegmentActivations::logits},
    Member<SegmentActivations>{"losses", &SegmentActivations::losses},
    Member<SegmentActivations>{"output", &SegmentActivations::output},
};

constexpr std::array gradient_members = {
    Member<SegmentGradients>{"output", &SegmentGradients::output},
    Member<SegmentGradients>{"output_scale", &SegmentGradients::output_scale},
    Member<SegmentGradients>{"output_values", &SegmentGradients::output_values},
    Member<SegmentGradients>{"act", &SegmentGradients::act},
    Member<SegmentGradients>{"up", &SegmentGradients::up},
    Member<SegmentGradients>{"qkv", &SegmentGradients::qkv},
    Member<SegmentGradients>{"query_gain", &SegmentGradients::query_gain},
    Member<SegmentGradients>{"key_gain", &SegmentGradients::key_gain},
    Member<SegmentGradients>{"attention", &SegmentGradients::attention},
    Member<SegmentGradients>{"scale", &SegmentGradients::scale},
    Member<SegmentGradients>{"first_operand", &SegmentGradients::first_operand},
    Member<SegmentGradients>{"last_operand", &SegmentGradients::last_operand},
    Member<SegmentGradients>{"first_sums", &SegmentGradients::first_sums},
    Member<SegmentGradients>{"last_sums", &SegmentGradients::last_sums},
};

template <typename Struct, typename Members>
Struct bind(const Members& members, const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  require(specs.size() == memory.size(), "bind: memory for every tensor");
  Struct bound;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto member = std::find_if(members.begin(), members.end(), [&](const auto& m) { return specs[i].name == m.name; });
    require(member != members.end(), "bind: no tensor is called " + specs[i].name);
    bound.*(member->view) = View(memory[i], specs[i].dtype, specs[i].shape);
  }
  return bound;
}

template <typename Struct, typename Members>
Struct overlay_all(const Members& members, Struct below, const Struct& above) {
  for (const auto& m : members) {
    if (above.*(m.view)) below.*(m.view) = above.*(m.view);
  }
  return below;
}

template <typename Struct, typename Members>
std::vector<NamedView> name_all(const Members& members, const Struct& views) {
  std::vector<NamedView> list;
  for (const auto& m : members) {
    if (views.*(m.view)) list.push_back({m.name, views.*(m.view)});
  }
  return list;
}

// Adds the FP8 operands of `rows` rows that backward_weight reads. `first_columns` is 0 if the first one is gathered.
void add_operands(std::vector<TensorSpec>& specs, std::int64_t rows, std::int64_t first_columns, Keep first,
                  std::int64_t last_columns, Keep last) {
  const auto add = [&](const char* name, Shape shape, DType dtype, Keep keep) {
    specs.push_back({name, shape, dtype, keep, Split::none, TensorRole::workspace});
  };
  add("scale", {ops::scale_floats}, DType::f32, Keep::saved);
  if (first_columns > 0) add("first_operand", {first_columns, rows}, DType::e4m3, first);
  add("last_operand", {last_columns, rows}, DType::e4m3, last);
}

DType statistics_type(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

ops::AttentionShape attention_shape(const SegmentSizes& sizes, int segment) {
  const ModelShape part = sizes.shape.local(sizes.split.size);
  const MicroBatchShape& mb = sizes.micro_batch;
  const std::int64_t window = part.window_of(segment);
  return {.batch = mb.batch,
          .sequence = mb.sequence,
          .heads = part.heads,
          .kv_heads = part.kv_heads,
          .head_dim = part.head_dim,
          .window = window < mb.sequence ? window : 0,  // a window of the whole sequence hides nothing
          .documents = mb.documents};
}

bool gathers_operands(const SegmentSizes& sizes, SegmentKind kind) {
  return sizes.fp8 && sizes.split.sequence_parallel && sizes.split.size > 1 && has_norm(kind) && has_output(kind);
}

std::size_t operand_bytes(const Shape& shape) {
  constexpr std::size_t alignment = 256;
  return (static_cast<std::size_t>(shape.elements()) + alignment - 1) / alignment * alignment;
}

std::size_t operand_workspace_bytes(const SegmentSizes& sizes) {
  if (!sizes.fp8) return 0;
  const ModelShape s = sizes.shape.local(sizes.split.size);
  const std::int64_t rows = sizes.micro_batch.rows();
  return operand_bytes({rows, std::max({s.hidden, s.qkv_dim(), s.attention_dim(), s.up_dim(), s.ffn})});
}

std::vector<TensorSpec> norm_specs(const SegmentSizes& sizes, int segment) {
  const SegmentKind kind = sizes.shape.kind(segment);
  if (!has_norm(kind)) return {};
  const DType statistics = statistics_type(sizes.compute);
  const bool operand = sizes.fp8 && has_output(kind), operands_gathered = gathers_operands(sizes, kind);
  const Keep out = operand && sizes.recompute == Recompute::none ? Keep::forward : Keep::saved;
  const Shape whole{sizes.micro_batch.rows(), sizes.shape.hidden};
  std::vector<TensorSpec> specs;
  if (operands_gathered) {
    specs.push_back({"norm_out", sizes.own_residual(), sizes.compute, out, Split::residual});
    specs.push_back({"norm_values", whole, DType::e4m3, Keep::saved, Split::none, TensorRole::workspace, true});
  } else {
    specs.push_back({"norm_out", whole, sizes.compute, out, Split::none, TensorRole::internal, sizes.split.sequence_parallel});
  }
  if (operand)
    specs.push_back({"norm_scale", {ops::scale_floats}, DType::f32, Keep::saved, Split::none, TensorRole::workspace});
  if (sizes.shape.norm == ops::NormKind::layer_norm)
    specs.push_back({"norm_mean", {sizes.own_rows()}, statistics, Keep::saved, Split::residual});
  specs.push_back({"norm_rstd", {sizes.own_rows()}, statistics, Keep::saved, Split::residual});
  return specs;
}

std::vector<TensorSpec> activation_specs(const SegmentSizes& sizes, int segment) {
  const ModelShape s = sizes.shape.local(sizes.split.size);
  const std::int64_t rows = sizes.micro_batch.rows();
  const DType compute = sizes.compute, statistics = statistics_type(compute);
  // Selective recomputation drops tensors that one elementwise pass restores; full recomputation keeps only the segment's
  // output.
  const Keep cheap = sizes.recompute == Recompute::none ? Keep::saved : Keep::scratch;
  const Keep costly = sizes.recompute != Recompute::full ? Keep::saved : Keep::scratch;
  // A recomputed tensor is quantized for backward_weight when it is recomputed.
  const auto operand_of = [](Keep tensor) { return tensor == Keep::saved ? Keep::saved : Keep::backward; };
  const std::int64_t first_columns = gathers_operands(sizes, s.kind(segment)) ? 0 : s.hidden;
  std::vector<TensorSpec> specs;
  switch (s.kind(segment)) {
    case SegmentKind::embedding: break;
    case SegmentKind::attention:
      // Norm and rotation restore attention's input from their own.
      if (s.qk_norm) specs.push_back({"projected_qkv", {rows, s.qkv_dim()}, compute, costly, Split::columns});
      specs.push_back({"qkv", {rows, s.qkv_dim()}, compute, s.qk_norm ? cheap : costly, Split::columns});
      specs.push_back({"attention_out", {rows, s.attention_dim()}, compute, costly, Split::columns});
      specs.push_back(
          {"lse", {sizes.micro_batch.batch, s.heads, sizes.micro_batch.sequence}, statistics, costly, Split::columns});
      if (sizes.fp8) add_operands(specs, rows, first_columns, operand_of(cheap), s.attention_dim(), operand_of(costly));
      break;
    case SegmentKind::mlp:
      specs.push_back({"up", {rows, s.up_dim()}, compute, costly, Split::columns});
      // GELU is computed where it is rounded, so it has no tensor.
      if (!sizes.fp8 || s.mlp == Mlp::swiglu) {
        specs.push_back(
            {"act", {rows, s.ffn}, compute, sizes.fp8 && cheap == Keep::saved ? Keep::forward : cheap, Split::columns});
      }
      if (sizes.fp8) add_operands(specs, rows, first_columns, operand_of(cheap), s.ffn, operand_of(cheap));
      break;
    case SegmentKind::head:
      specs.push_back({"logits", {rows, s.padded_vocab}, compute, Keep::saved, Split::columns});
      specs.push_back({"losses", {rows}, statistics, Keep::saved, Split::none});
      return specs;
  }
  specs.push_back({"output", sizes.own_residual(), compute, Keep::saved, Split::residual, TensorRole::output});
  return specs;
}

std::vector<TensorSpec> gradient_specs(const SegmentSizes& sizes, int segment, bool received) {
  const ModelShape s = sizes.shape.local(sizes.split.size);
  const std::int64_t rows = sizes.micro_batch.rows();
  const DType compute = sizes.compute;
  std::vector<TensorSpec> specs;
  const SegmentKind kind = s.kind(segment);
  if (kind == SegmentKind::head) return specs;
  const bool operands_gathered = !received && gathers_operands(sizes, kind);
  if (operands_gathered) {
    specs.push_back({"output", sizes.own_residual(), compute, Keep::saved, Split::residual, TensorRole::output});
  } else {
    specs.push_back(
        {"output", {rows, s.hidden}, compute, Keep::saved, Split::none, TensorRole::output, sizes.split.sequence_parallel});
  }
  const auto beside_output = [&](const char* name, Shape shape, DType type, bool gathered) {
    specs.push_back({name, shape, type, Keep::saved, Split::none, TensorRole::beside_output, gathered});
  };
  if (sizes.fp8 && has_norm(kind)) beside_output("output_scale", {ops::scale_floats}, DType::f32, false);
  if (operands_gathered) beside_output("output_values", {rows, s.hidden}, DType::e4m3, true);
  if (kind == SegmentKind::mlp) {
    if (s.mlp == Mlp::swiglu) specs.push_back({"act", {rows, s.ffn}, compute, Keep::scratch, Split::columns});
    specs.push_back({"up", {rows, s.up_dim()}, compute, Keep::saved, Split::columns});
  }
  if (kind == SegmentKind::attention) {
    specs.push_back({"qkv", {rows, s.qkv_dim()}, compute, Keep::saved, Split::columns});
    if (s.qk_norm) {
      for (const char* gain : {"query_gain", "key_gain"})
        specs.push_back({gain, {s.head_dim}, statistics_type(compute), Keep::saved, Split::none, TensorRole::workspace});
    }
    specs.push_back({"attention", {rows, s.attention_dim()}, compute, Keep::scratch, Split::columns});
  }
  if (sizes.fp8 && has_norm(kind)) {
    const std::int64_t columns = kind == SegmentKind::mlp ? s.up_dim() : s.qkv_dim();
    add_operands(specs, rows, operands_gathered ? 0 : s.hidden, Keep::saved, columns, Keep::saved);
    const auto add_sums = [&](const char* name, std::int64_t of) {
      specs.push_back({name, {of}, statistics_type(compute), Keep::saved, Split::none, TensorRole::workspace});
    };
    // Under sequence parallelism, backward_weight sums this rank's own rows.
    if (s.bias && !sizes.split.sequence_parallel) add_sums("first_sums", s.hidden);
    if (kind == SegmentKind::mlp ? s.bias : s.qkv_bias) add_sums("last_sums", columns);
  }
  return specs;
}

NormActivations bind_norm(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<NormActivations>(norm_members, specs, memory);
}

SegmentActivations bind_activations(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<SegmentActivations>(activation_members, specs, memory);
}

SegmentActivations overlay(SegmentActivations below, const SegmentActivations& above) {
  return overlay_all(activation_members, below, above);
}
SegmentGradients overlay(SegmentGradients below, const SegmentGradients& above) {
  return overlay_all(gradient_members, below, above);
}

SegmentGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<SegmentGradients>(gradient_members, specs, memory);
}

std::vector<NamedView> named(const NormActivations& norm) { return name_all(norm_members, norm); }
std::vector<NamedView> named(const SegmentActivations& activations) { return name_all(activation_members, activations); }
std::vector<NamedView> named(const SegmentGradients& gradients) { return name_all(gradient_members, gradients); }

}  // namespace plait::model
