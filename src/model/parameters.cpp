#include "model/parameters.h"

#include <cmath>
#include <map>

#include "core/error.h"
#include "core/philox.h"

namespace plait::model {
namespace {

std::string block_prefix(int block) { return "blocks." + std::to_string(block - 1) + "."; }

}  // namespace

std::vector<Parameter> parameters(const ModelShape& s) {
  constexpr float weight_std = 0.02f;  // GPT-2
  // The two projections back into the residual stream are scaled down with depth (GPT-2, Radford et al. 2019, section 2.3).
  const float residual_std = weight_std / std::sqrt(2.0f * static_cast<float>(s.layers));
  std::vector<Parameter> list;
  const auto matrix = [&](std::string name, std::int64_t out, std::int64_t in, int block, float std) {
    list.push_back({std::move(name), {out, in}, out * in, {out, in}, block, Init::normal, std, true});
  };
  const auto vector = [&](std::string name, std::int64_t dim, int block, Init init) {
    list.push_back({std::move(name), {dim}, dim, {dim}, block, init, 0.0f, false});
  };
  const auto norm = [&](const std::string& name, int block) {
    vector(name + ".weight", s.hidden, block, Init::one);
    if (s.norm == ops::NormKind::layer_norm && s.bias) vector(name + ".bias", s.hidden, block, Init::zero);
  };
  const auto table = [&](std::string name, int block) {
    matrix(std::move(name), s.padded_vocab, s.hidden, block, weight_std);
    list.back().stored = s.vocab * s.hidden;
    list.back().stored_shape = {s.vocab, s.hidden};
  };

  table("embedding.tokens.weight", 0);
  if (s.position == Position::learned) {
    matrix("embedding.positions.weight", s.max_sequence, s.hidden, 0, weight_std);
    list.back().decay = false;
  }
  for (int block = 1; block <= s.layers; ++block) {
    const std::string prefix = block_prefix(block);
    norm(prefix + "attention_norm", block);
    matrix(prefix + "attention.qkv.weight", s.qkv_dim(), s.hidden, block, weight_std);
    if (s.qkv_bias) vector(prefix + "attention.qkv.bias", s.qkv_dim(), block, Init::zero);
    matrix(prefix + "attention.output.weight", s.hidden, s.attention_dim(), block, residual_std);
    if (s.bias) vector(prefix + "attention.output.bias", s.hidden, block, Init::zero);
    norm(prefix + "mlp_norm", block);
    matrix(prefix + "mlp.up.weight", s.up_dim(), s.hidden, block, weight_std);
    if (s.bias) vector(prefix + "mlp.up.bias", s.up_dim(), block, Init::zero);
    matrix(prefix + "mlp.down.weight", s.hidden, s.ffn, block, residual_std);
    if (s.bias) vector(prefix + "mlp.down.bias", s.hidden, block, Init::zero);
  }
  norm("head.norm", s.head_block());
  if (!s.tie_embeddings) table("head.weight", s.head_block());
  return list;
}

void initial_values(const Parameter& parameter, std::uint64_t seed, std::int64_t first, std::span<float> values) {
  switch (parameter.init) {
    case Init::zero:
    case Init::one:
      std::fill(values.begin(), values.end(), parameter.init == Init::one ? 1.0f : 0.0f);
      break;
    case Init::normal:
      Random(seed, parameter.name).fill_normal(static_cast<std::uint64_t>(first), values);
      for (float& v : values) v *= parameter.std;
      break;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (first + static_cast<std::int64_t>(i) >= parameter.stored) values[i] = 0.0f;
  }
}

std::vector<BlockParameters> bind_parameters(const ModelShape& s, const std::vector<Parameter>& list,
                                             std::span<const View> views) {
  require(list.size() == views.size(), "bind_parameters: a view for every parameter");
  std::map<std::string, View> by_name;
  for (std::size_t i = 0; i < list.size(); ++i) {
    require(views[i].shape == list[i].shape, "bind_parameters: shape of " + list[i].name);
    by_name[list[i].name] = views[i];
  }
  const auto find = [&](const std::string& name) {
    const auto it = by_name.find(name);
    return it == by_name.end() ? View() : it->second;
  };
  std::vector<BlockParameters> blocks(static_cast<std::size_t>(s.blocks()));
  blocks.front().tokens = find("embedding.tokens.weight");
  blocks.front().positions = find("embedding.positions.weight");
  for (int block = 1; block <= s.layers; ++block) {
    const std::string prefix = block_prefix(block);
    BlockParameters& b = blocks[static_cast<std::size_t>(block)];
    b.norm1_weight = find(prefix + "attention_norm.weight");
    b.norm1_bias = find(prefix + "attention_norm.bias");
    b.qkv_weight = find(prefix + "attention.qkv.weight");
    b.qkv_bias = find(prefix + "attention.qkv.bias");
    b.output_weight = find(prefix + "attention.output.weight");
    b.output_bias = find(prefix + "attention.output.bias");
    b.norm2_weight = find(prefix + "mlp_norm.weight");
    b.norm2_bias = find(prefix + "mlp_norm.bias");
    b.up_weight = find(prefix + "mlp.up.weight");
    b.up_bias = find(prefix + "mlp.up.bias");
    b.down_weight = find(prefix + "mlp.down.weight");
    b.down_bias = find(prefix + "mlp.down.bias");
  }
  blocks.back().norm_weight = find("head.norm.weight");
  blocks.back().norm_bias = find("head.norm.bias");
  blocks.back().head_weight = s.tie_embeddings ? blocks.front().tokens : find("head.weight");
  return blocks;
}

}  // namespace plait::model
