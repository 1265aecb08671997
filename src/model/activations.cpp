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
    Member<BlockActivations>{"norm1_out", &BlockActivations::norm1_out},
    Member<BlockActivations>{"norm1_mean", &BlockActivations::norm1_mean},
    Member<BlockActivations>{"norm1_rstd", &BlockActivations::norm1_rstd},
    Member<BlockActivations>{"qkv", &BlockActivations::qkv},
    Member<BlockActivations>{"attention_out", &BlockActivations::attention_out},
    Member<BlockActivations>{"lse", &BlockActivations::lse},
    Member<BlockActivations>{"middle", &BlockActivations::middle},
    Member<BlockActivations>{"norm2_out", &BlockActivations::norm2_out},
    Member<BlockActivations>{"norm2_mean", &BlockActivations::norm2_mean},
    Member<BlockActivations>{"norm2_rstd", &BlockActivations::norm2_rstd},
    Member<BlockActivations>{"up", &BlockActivations::up},
    Member<BlockActivations>{"act", &BlockActivations::act},
    Member<BlockActivations>{"norm_out", &BlockActivations::norm_out},
    Member<BlockActivations>{"norm_mean", &BlockActivations::norm_mean},
    Member<BlockActivations>{"norm_rstd", &BlockActivations::norm_rstd},
    Member<BlockActivations>{"logits", &BlockActivations::logits},
    Member<BlockActivations>{"losses", &BlockActivations::losses},
    Member<BlockActivations>{"output", &BlockActivations::output},
};

constexpr std::array gradient_members = {
    Member<BlockGradients>{"act", &BlockGradients::act},       Member<BlockGradients>{"up", &BlockGradients::up},
    Member<BlockGradients>{"middle", &BlockGradients::middle}, Member<BlockGradients>{"qkv", &BlockGradients::qkv},
    Member<BlockGradients>{"narrow", &BlockGradients::narrow},
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

std::vector<TensorSpec> activation_specs(const ModelShape& s, const MicroBatchShape& mb, DType compute, Recompute recompute,
                                         int block) {
  const std::int64_t rows = mb.rows();
  const DType statistics = statistics_type(compute);
  // Selective recompute drops what one elementwise pass brings back; full recompute keeps the block's output alone.
  const Keep cheap = recompute == Recompute::none ? Keep::saved : Keep::scratch;
  const Keep costly = recompute == Recompute::full ? Keep::scratch : Keep::saved;
  std::vector<TensorSpec> specs;
  if (block == s.head_block()) {
    specs.push_back({"norm_out", {rows, s.hidden}, compute, Keep::saved});
    if (s.norm == ops::NormKind::layer_norm) specs.push_back({"norm_mean", {rows}, statistics, Keep::saved});
    specs.push_back({"norm_rstd", {rows}, statistics, Keep::saved});
    specs.push_back({"logits", {rows, s.padded_vocab}, compute, Keep::saved});
    specs.push_back({"losses", {rows}, statistics, Keep::saved});
    return specs;
  }
  if (block > 0) {
    const bool mean = s.norm == ops::NormKind::layer_norm;
    specs.push_back({"norm1_out", {rows, s.hidden}, compute, cheap});
    if (mean) specs.push_back({"norm1_mean", {rows}, statistics, costly});
    specs.push_back({"norm1_rstd", {rows}, statistics, costly});
    specs.push_back({"qkv", {rows, s.qkv_dim()}, compute, costly});
    specs.push_back({"attention_out", {rows, s.attention_dim()}, compute, costly});
    specs.push_back({"lse", {mb.batch, s.heads, mb.sequence}, statistics, costly});
    specs.push_back({"middle", {rows, s.hidden}, compute, costly});
    specs.push_back({"norm2_out", {rows, s.hidden}, compute, cheap});
    if (mean) specs.push_back({"norm2_mean", {rows}, statistics, costly});
    specs.push_back({"norm2_rstd", {rows}, statistics, costly});
    specs.push_back({"up", {rows, s.up_dim()}, compute, costly});
    specs.push_back({"act", {rows, s.ffn}, compute, cheap});
  }
  specs.push_back({"output", {rows, s.hidden}, compute, Keep::saved});
  return specs;
}

std::vector<TensorSpec> gradient_specs(const ModelShape& s, const MicroBatchShape& mb, DType compute) {
  const std::int64_t rows = mb.rows();
  std::vector<TensorSpec> specs;
  if (s.mlp == Mlp::swiglu) specs.push_back({"act", {rows, s.ffn}, compute, Keep::scratch});
  specs.push_back({"up", {rows, s.up_dim()}, compute, Keep::saved});
  specs.push_back({"middle", {rows, s.hidden}, compute, Keep::saved});
  specs.push_back({"qkv", {rows, s.qkv_dim()}, compute, Keep::saved});
  specs.push_back({"narrow", {rows, std::max(s.hidden, s.attention_dim())}, compute, Keep::scratch});
  return specs;
}

BlockActivations bind_activations(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<BlockActivations>(activation_members, specs, memory);
}

BlockGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<BlockGradients>(gradient_members, specs, memory);
}

std::vector<NamedView> named(const BlockActivations& activations) { return name_all(activation_members, activations); }
std::vector<NamedView> named(const BlockGradients& gradients) { return name_all(gradient_members, gradients); }

}  // namespace plait::model
