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
    Member<BlockActivations>{"statistics", &BlockActivations::statistics},
    Member<BlockActivations>{"losses", &BlockActivations::losses},
    Member<BlockActivations>{"partial", &BlockActivations::partial},
    Member<BlockActivations>{"output", &BlockActivations::output},
};

constexpr std::array gradient_members = {
    Member<BlockGradients>{"output", &BlockGradients::output}, Member<BlockGradients>{"act", &BlockGradients::act},
    Member<BlockGradients>{"up", &BlockGradients::up},         Member<BlockGradients>{"middle", &BlockGradients::middle},
    Member<BlockGradients>{"qkv", &BlockGradients::qkv},       Member<BlockGradients>{"narrow", &BlockGradients::narrow},
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

std::vector<TensorSpec> activation_specs(const BlockSizes& sizes, int block) {
  const ModelShape s = sizes.shape.local(sizes.split.size);
  const std::int64_t rows = sizes.micro_batch.rows(), own_rows = sizes.own_rows();
  const DType compute = sizes.compute, statistics = statistics_type(compute);
  const bool mean = s.norm == ops::NormKind::layer_norm;
  // Selective recompute drops what one elementwise pass brings back; full recompute keeps the block's output alone.
  const Keep cheap = sizes.recompute == Recompute::none ? Keep::saved : Keep::scratch;
  const Keep costly = sizes.recompute == Recompute::full ? Keep::scratch : Keep::saved;
  std::vector<TensorSpec> specs;
  const auto norm = [&](const std::string& name, Keep out, Keep sums) {
    specs.push_back({name + "_out", {rows, s.hidden}, compute, out, Split::none});
    if (mean) specs.push_back({name + "_mean", {own_rows}, statistics, sums, Split::residual});
    specs.push_back({name + "_rstd", {own_rows}, statistics, sums, Split::residual});
  };
  if (block == s.head_block()) {
    norm("norm", Keep::saved, Keep::saved);
    specs.push_back({"logits", {rows, s.padded_vocab}, compute, Keep::saved, Split::columns});
    specs.push_back({"statistics", {sizes.split.size, rows, 3}, statistics, Keep::scratch, Split::none, TensorRole::workspace});
    specs.push_back({"losses", {rows}, statistics, Keep::saved, Split::none});
    return specs;
  }
  if (block > 0) {
    norm("norm1", cheap, costly);
    specs.push_back({"qkv", {rows, s.qkv_dim()}, compute, costly, Split::columns});
    specs.push_back({"attention_out", {rows, s.attention_dim()}, compute, costly, Split::columns});
    specs.push_back(
        {"lse", {sizes.micro_batch.batch, s.heads, sizes.micro_batch.sequence}, statistics, costly, Split::columns});
    specs.push_back({"middle", {own_rows, s.hidden}, compute, costly, Split::residual});
    norm("norm2", cheap, costly);
    specs.push_back({"up", {rows, s.up_dim()}, compute, costly, Split::columns});
    specs.push_back({"act", {rows, s.ffn}, compute, cheap, Split::columns});
  }
  if (sizes.split.sequence_parallel)
    specs.push_back({"partial", {rows, s.hidden}, compute, Keep::scratch, Split::none, TensorRole::workspace});
  specs.push_back({"output", {own_rows, s.hidden}, compute, Keep::saved, Split::residual, TensorRole::output});
  return specs;
}

std::vector<TensorSpec> gradient_specs(const BlockSizes& sizes, int block) {
  const ModelShape s = sizes.shape.local(sizes.split.size);
  const std::int64_t rows = sizes.micro_batch.rows();
  const DType compute = sizes.compute;
  std::vector<TensorSpec> specs;
  if (block != s.head_block())
    specs.push_back({"output", {rows, s.hidden}, compute, Keep::saved, Split::none, TensorRole::output});
  if (block > 0) {
    if (block != s.head_block()) {
      if (s.mlp == Mlp::swiglu) specs.push_back({"act", {rows, s.ffn}, compute, Keep::scratch, Split::columns});
      specs.push_back({"up", {rows, s.up_dim()}, compute, Keep::saved, Split::columns});
      specs.push_back({"middle", {rows, s.hidden}, compute, Keep::saved, Split::none});
      specs.push_back({"qkv", {rows, s.qkv_dim()}, compute, Keep::saved, Split::columns});
    }
    specs.push_back(
        {"narrow", {rows, std::max(s.hidden, s.attention_dim())}, compute, Keep::scratch, Split::none, TensorRole::workspace});
  }
  return specs;
}

BlockActivations bind_activations(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<BlockActivations>(activation_members, specs, memory);
}

BlockActivations overlay(BlockActivations below, const BlockActivations& above) {
  for (const auto& m : activation_members) {
    if (above.*(m.view)) below.*(m.view) = above.*(m.view);
  }
  return below;
}

BlockGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory) {
  return bind<BlockGradients>(gradient_members, specs, memory);
}

std::vector<NamedView> named(const BlockActivations& activations) { return name_all(activation_members, activations); }
std::vector<NamedView> named(const BlockGradients& gradients) { return name_all(gradient_members, gradients); }

}  // namespace plait::model
