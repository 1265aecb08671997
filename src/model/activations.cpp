#include "model/activations.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace plait::model {
namespace {

template <typename Struct>
struct Member {
  const char* name;
  View Struct::* view;
};

// In execution order.
constexpr std::array activation_members = {
    Member<SegmentActivations>{"norm_out", &SegmentActivations::norm_out},
    Member<SegmentActivations>{"norm_mean", &SegmentActivations::norm_mean},
    Member<SegmentActivations>{"norm_rstd", &SegmentActivations::norm_rstd},
    Member<SegmentActivations>{"qkv", &SegmentActivations::qkv},
    Member<SegmentActivations>{"attention_out", &SegmentActivations::attention_out},
    Member<SegmentActivations>{"lse", &SegmentActivations::lse},
    Member<SegmentActivations>{"up", &SegmentActivations::up},
    Member<SegmentActivations>{"act", &SegmentActivations::act},
    Member<SegmentActivations>{"logits", &SegmentActivations::logits},
    Member<SegmentActivations>{"statistics", &SegmentActivations::statistics},
    Member<SegmentActivations>{"losses", &SegmentActivations::losses},
    Member<SegmentActivations>{"partial", &SegmentActivations::partial},
    Member<SegmentActivations>{"output", &SegmentActivations::output},
};

constexpr std::array gradient_members = {
    Member<SegmentGradients>{"output", &SegmentGradients::output}, Member<SegmentGradients>{"act", &SegmentGradients::act},
    Member<SegmentGradients>{"up", &SegmentGradients::up},         Member<SegmentGradients>{"qkv", &SegmentGradients::qkv},
    Member<SegmentGradients>{"narrow", &SegmentGradients::narrow},
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
std::vector<NamedView> name_all(const Members& members, const Struct& views) {
  std::vector<NamedView> list;
  for (const auto& m : members) {
    if (views.*(m.view)) list.push_back({m.name, views.*(m.view)});
  }
  return list;
}

DType statistics_type(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

std::vector<TensorSpec> activation_specs(const SegmentSizes& sizes, int segment) {
  const ModelShape s = sizes.shape.local(sizes.split.size);
  const SegmentKind kind = s.kind(segment);
  const std::int64_t rows = sizes.micro_batch.rows(), own_rows = sizes.own_rows();
  const DType compute = sizes.compute, statistics = statistics_type(compute);
  // Selective recompute drops what one elementwise pass brings back; full recompute keeps the segment's output alone.
  const bool keeps_all = sizes.recompute == Recompute::none || kind == SegmentKind::head;
  const Keep cheap = keeps_all ? Keep::saved : Keep::scratch;
  const Keep costly = keeps_all || sizes.recompute == Recompute::selective ? Keep::saved : Keep::scratch;
  std::vector<TensorSpec> specs;
  if (kind != SegmentKind::embedding) {
    specs.push_back({"norm_out", {rows, s.hidden}, compute, cheap, Split::none});
    if (s.norm == ops::NormKind::layer_norm) specs.push_back({"norm_mean", {own_rows}, statistics, costly, Split::residual});
    specs.push_back({"norm_rstd", {own_rows}, statistics, costly, Split::residual});
  }
  switch (kind) {
    case SegmentKind::embedding: break;
    case SegmentKind::attention:
      specs.push_back({"qkv", {rows, s.qkv_dim()}, compute, costly, Split::columns});
      specs.push_back({"attention_out", {rows, s.attention_dim()}, compute, costly, Split::columns});
      specs.push_back(
          {"lse", {sizes.micro_batch.batch, s.heads, sizes.micro_batch.sequence}, statistics, costly, Split::columns});
      break;
    case SegmentKind::mlp:
      specs.push_back({"up", {rows, s.up_dim()}, compute, costly, Split::columns});
      specs.push_back({"act", {rows, s.ffn}, compute, cheap, Split::columns});
      break;
    case SegmentKind::head:
      specs.push_back({"logits", {rows, s.padded_vocab}, compute, Keep::saved, Split::columns});
      specs.push_back(
          {"statistics", {sizes.split.size, rows, 3}, statistics, Keep::scratch, Split::none, TensorRole::workspace});
      specs.push_back({"losses", {rows}, statistics, Keep::saved, Split::none});
      return specs;
  }
  if (sizes.split.sequence_parallel)
    specs.push_back({"partial", {rows, s.hidden}, compute, Keep::scratch, Split::none, TensorRole::workspace});
  specs.push_back({"output", {own_rows, s.hidden}, compute, Keep::saved, Split::residual, TensorRole::output});
  return specs;
}

std::vector<TensorSpec> gradient_specs(const SegmentSizes& sizes, int segment) {
  const ModelShape s = sizes.shape.local(sizes.split.size);
  const SegmentKind kind = s.kind(segment);
  const std::int64_t rows = sizes.micro_batch.rows();
  const DType compute = sizes.compute;
  std::vector<TensorSpec> specs;
  if (kind != SegmentKind::head)
    specs.push_back({"output", {rows, s.hidden}, compute, Keep::saved, Split::none, TensorRole::output});
  if (kind == SegmentKind::embedding) return specs;
  if (kind == SegmentKind::mlp && s.mlp == Mlp::swiglu)
    specs.push_back({"act", {rows, s.ffn}, compute, Keep::scratch, Split::columns});
  if (kind == SegmentKind::mlp) specs.push_back({"up", {rows, s.up_dim()}, compute, Keep::saved, Split::columns});
  if (kind == SegmentKind::attention) specs.push_back({"qkv", {rows, s.qkv_dim()}, compute, Keep::saved, Split::columns});
  specs.push_back(
      {"narrow", {rows, std::max(s.hidden, s.attention_dim())}, compute, Keep::scratch, Split::none, TensorRole::workspace});
  return specs;
}

SegmentActivations bind_activations(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<SegmentActivations>(activation_members, specs, memory);
}

SegmentActivations overlay(SegmentActivations below, const SegmentActivations& above) {
  for (const auto& m : activation_members) {
    if (above.*(m.view)) below.*(m.view) = above.*(m.view);
  }
  return below;
}

SegmentGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<SegmentGradients>(gradient_members, specs, memory);
}

std::vector<NamedView> named(const SegmentActivations& activations) { return name_all(activation_members, activations); }
std::vector<NamedView> named(const SegmentGradients& gradients) { return name_all(gradient_members, gradients); }

}  // namespace plait::model
