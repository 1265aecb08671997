#include "interop/model_family.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/record.h"

namespace plait::interop {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t most_config_bytes = 16 << 20;
constexpr std::array<std::string_view, 5> families{"gpt2", "llama", "mistral", "qwen2", "qwen3"};

// A field of config.json. One that is null counts as missing, as transformers reads it.
using Field = BasicJsonField<Json>;

void expect_flag(const Field& field, bool usual, const std::string& why) {
  if (field.flag_or(usual) != usual) field.refuse(fmt::format("must be {}: {}", usual, why));
}

void read_gpt2(const Field& f, ForeignModel& foreign) {
  ModelConfig& m = foreign.model;
  m.hidden = f["n_embd"].whole(1, limits::hidden.most);
  m.layers = f["n_layer"].whole(1, limits::layers.most);
  m.heads = m.kv_heads = f["n_head"].whole(1, limits::heads.most);
  m.ffn = f["n_inner"].whole_or(4 * m.hidden, 1, limits::ffn.most);
  if (m.hidden % m.heads != 0) f.refuse("n_head", fmt::format("must divide n_embd={}", m.hidden));
  m.head_dim = m.hidden / m.heads;
  foreign.positions = m.max_sequence = f["n_positions"].whole(1, limits::sequence.most);
  m.norm = NormKind::layer_norm, m.mlp = Mlp::gelu, m.position = Position::learned, m.bias = m.qkv_bias = true;
  m.norm_epsilon = f["layer_norm_epsilon"].number_or(1e-5, 1e-30, 1);
  const std::string activation = f["activation_function"].text_or("gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    f.refuse("activation_function", "must be gelu_new or gelu_pytorch_tanh: plait computes GELU's tanh form");
  expect_flag(f["scale_attn_weights"], true, "plait always scales attention by the root of the head's width");
  expect_flag(f["scale_attn_by_inverse_layer_idx"], false, "plait scales attention alike in all layers");
  expect_flag(f["add_cross_attention"], false, "plait has decoders only");
  m.tie_embeddings = f["tie_word_embeddings"].flag_or(true);
  for (const char* field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    foreign.has_dropout |= f[field].number_or(0.1, 0, 1) > 0;
}

// What a section says of how rotary positions are scaled. `kind` is empty where it does not.
struct RotarySection {
  std::string kind;
  RopeScalingConfig scaling;
};

RotarySection read_rotary_section(const Field& f, const std::string& section) {
  const Field at = f[section];
  for (const auto& [name, value] : at.members()) {
    if (value.json().is_object()) value.refuse("must not be an object: plait has the same rotary positions in all layers");
  }
  RotarySection read;
  for (const char* name : {"rope_type", "type"}) {
    const std::string kind = at[name].text_or("");
    if (kind.empty()) continue;
    if (kind != "default" && kind != "llama3")
      at.refuse(name, "must be default or llama3: plait scales rotary positions in no other way");
    if (!read.kind.empty() && read.kind != kind)
      at.refuse(name, fmt::format("must be {}, as {}.rope_type is, or absent", read.kind, section));
    read.kind = kind;
  }
  if (at.has("factor") && read.kind.empty()) at.refuse("rope_type", "is missing, so that nothing says what factor scales");
  if (at["partial_rotary_factor"].number_or(1, 0, 1) != 1)
    at.refuse("partial_rotary_factor", "must be 1: plait rotates all of a head");
  if (read.kind != "llama3") return read;
  RopeScalingConfig& s = read.scaling;
  s.factor = at["factor"].number(1, 1e6);
  s.low_freq_factor = at["low_freq_factor"].number(1e-6, 1e6);
  s.high_freq_factor = at["high_freq_factor"].number(1e-6, 1e6);
  if (s.low_freq_factor >= s.high_freq_factor)
    at.refuse("low_freq_factor", fmt::format("must be below high_freq_factor={}", s.high_freq_factor));
  const char* const original = "original_max_position_embeddings";
  s.original_max_position = at[original].whole(1, limits::sequence.most);
  // Versions of transformers differ in which of the two they take.
  if (f[original].whole_or(s.original_max_position, 1, limits::sequence.most) != s.original_max_position)
    f.refuse(original, fmt::format("must be {}, as {}.{} is, or absent", s.original_max_position, section, original));
  return read;
}

// Rotary positions are written in three ways, of different ages. Of what two of them say differently, versions of transformers
// differ in which they take.
void read_rotary(const Field& f, ModelConfig& m) {
  const double usual = m.rope_base = f["rope_theta"].number_or(10000, 1, 1e12);
  const std::string newer = "rope_parameters", older = "rope_scaling";
  std::string kind;
  bool has_newer = false;
  for (const std::string& section : {newer, older}) {
    if (!f.has(section) || (f[section].json().is_object() && f[section].json().empty())) continue;
    const RotarySection read = read_rotary_section(f, section);
    const Field theta = f[section]["rope_theta"];
    const double base = theta.number_or(usual, 1, 1e12);
    if (has_newer && base != m.rope_base)
      theta.refuse(fmt::format("must be {}, as {}.rope_theta is: some versions read this section only", m.rope_base, newer));
    has_newer = true, m.rope_base = base;
    if (read.kind.empty()) continue;
    if (!kind.empty() && (kind != read.kind || m.rope_scaling != read.scaling))
      f.refuse(older, fmt::format("must say the same as {}, or be null", newer));
    kind = read.kind, m.rope_scaling = read.scaling;
  }
  if (f["partial_rotary_factor"].number_or(1, 0, 1) != 1)
    f.refuse("partial_rotary_factor", "must be 1: plait rotates all of a head");
}

// transformers' defaults for what a file does not say; null is none.
constexpr std::int64_t usual_window = 4096, usual_first_window_layer = 28;

// mistral: all layers have a window. qwen: if use_sliding_window, those that layer_types names, or all from max_window_layers
// on.
void read_window(const Field& f, ForeignModel& foreign) {
  ModelConfig& m = foreign.model;
  const bool qwen = foreign.family.starts_with("qwen");
  if (qwen && !f["use_sliding_window"].flag_or(false)) return;
  const bool llama = foreign.family == "llama";
  const std::int64_t none = std::int64_t{1} << 40,
                     otherwise = f.json().contains("sliding_window") || llama ? none : usual_window;
  const std::int64_t window = f["sliding_window"].whole_or(otherwise, 1, none);
  if (llama && window < foreign.positions)
    f.refuse("sliding_window", fmt::format("must be null or at least max_position_embeddings={}: transformers' llama has none",
                                           foreign.positions));
  if (llama || window > limits::sequence.most) return;
  std::vector<std::string> types;
  if (f.has("layer_types")) read_value(f["layer_types"], types, record::at_most(limits::layers.most));
  if (!types.empty() && std::ssize(types) != m.layers)
    f.refuse("layer_types", fmt::format("must have as many as num_hidden_layers={}", m.layers));
  const std::int64_t first = f["max_window_layers"].whole_or(usual_first_window_layer, 0, limits::layers.most);
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    if (types.empty()) {
      if (!qwen || layer >= first) m.window_layers.push_back(layer);
      continue;
    }
    const std::string& type = types[static_cast<std::size_t>(layer)];
    if (type == "sliding_attention") {
      m.window_layers.push_back(layer);
    } else if (type != "full_attention") {
      f.refuse("layer_types", "must be sliding_attention or full_attention: plait has no other kind of layer");
    } else if (!qwen) {
      f.refuse("layer_types", "must all be sliding_attention: transformers' mistral has its window in every layer");
    }
  }
  if (m.window_layers.empty()) return;
  m.window = window;
  if (std::ssize(m.window_layers) == m.layers) m.window_layers.clear();  // all
}

void read_llama(const Field& f, ForeignModel& foreign) {
  ModelConfig& m = foreign.model;
  m.hidden = f["hidden_size"].whole(1, limits::hidden.most);
  m.layers = f["num_hidden_layers"].whole(1, limits::layers.most);
  m.heads = f["num_attention_heads"].whole(1, limits::heads.most);
  m.kv_heads = f["num_key_value_heads"].whole_or(m.heads, 1, limits::heads.most);
  if (m.heads % m.kv_heads != 0) f.refuse("num_key_value_heads", fmt::format("must divide num_attention_heads={}", m.heads));
  const bool qwen3 = foreign.family == "qwen3";
  if (!f.has("head_dim") && !qwen3 && m.hidden % m.heads != 0)
    f.refuse("num_attention_heads", fmt::format("must divide hidden_size={}, as there is no head_dim", m.hidden));
  m.head_dim = f["head_dim"].whole_or(qwen3 ? 128 : m.hidden / m.heads, 1, limits::head_width.most);
  if (m.head_dim % 2 != 0)
    f.refuse(f.has("head_dim") ? "head_dim" : "num_attention_heads",
             fmt::format("must make heads of an even width, not {}: rotary positions turn pairs", m.head_dim.value()));
  m.ffn = f["intermediate_size"].whole(1, limits::ffn.most);
  foreign.positions = f["max_position_embeddings"].whole(1, limits::sequence.most);
  m.norm = NormKind::rms_norm, m.mlp = Mlp::swiglu, m.position = Position::rope;
  m.norm_epsilon = f["rms_norm_eps"].number_or(1e-6, 1e-30, 1);
  if (f["hidden_act"].text_or("silu") != "silu") f.refuse("hidden_act", "must be silu: plait's gated MLP is SwiGLU");
  const bool qwen2 = foreign.family == "qwen2";
  const bool attention = f["attention_bias"].flag_or(false), mlp = f["mlp_bias"].flag_or(false) && !qwen3;
  if (attention != mlp && !qwen2) {
    f.refuse(attention ? "attention_bias" : "mlp_bias",
             "must be false: plait has biases in the attention output and the MLP together, or in neither");
  }
  m.bias = !qwen2 && attention, m.qkv_bias = qwen2 || attention, m.qk_norm = qwen3;
  m.tie_embeddings = f["tie_word_embeddings"].flag_or(false);
  read_rotary(f, m);
  read_window(f, foreign);
  foreign.has_dropout = f["attention_dropout"].number_or(0, 0, 1) > 0;
}

Piece all(std::string tensor, std::int64_t rows) { return {.tensor = std::move(tensor), .first = 0, .rows = rows}; }

// One after another.
std::vector<Piece> stack(const std::vector<std::pair<std::string, std::int64_t>>& parts) {
  std::vector<Piece> pieces;
  std::int64_t first = 0;
  for (const auto& [tensor, rows] : parts) {
    pieces.push_back({.tensor = tensor, .first = first, .rows = rows});
    first += rows;
  }
  return pieces;
}

std::vector<Piece> gpt2_pieces(const std::string& name, std::int64_t rows, bool matrix, const std::string& prefix) {
  static const std::vector<std::pair<std::string_view, std::string_view>> in_block{
      {"attention_norm", "ln_1"}, {"attention.qkv", "attn.c_attn"}, {"attention.output", "attn.c_proj"},
      {"mlp_norm", "ln_2"},       {"mlp.up", "mlp.c_fc"},           {"mlp.down", "mlp.c_proj"}};
  if (name == "embedding.tokens.weight") return {all(prefix + "wte.weight", rows)};
  if (name == "embedding.positions.weight") return {all(prefix + "wpe.weight", rows)};
  if (name == "head.weight") return {all("lm_head.weight", rows)};
  if (name.starts_with("head.norm.")) return {all(prefix + "ln_f." + name.substr(10), rows)};
  const std::size_t block_end = name.find('.', 7), last = name.rfind('.');
  for (const auto& [ours, theirs] : in_block) {
    if (name.substr(block_end + 1, last - block_end - 1) != ours) continue;
    Piece piece = all(fmt::format("{}h.{}.{}{}", prefix, name.substr(7, block_end - 7), theirs, name.substr(last)), rows);
    piece.transposed = matrix;
    return {piece};
  }
  throw InternalError("gpt2 has no tensor for " + name);
}

std::vector<Piece> llama_pieces(const std::string& name, std::int64_t rows, const model::ModelShape& s,
                                const std::string& prefix) {
  if (name == "embedding.tokens.weight") return {all(prefix + "embed_tokens.weight", rows)};
  if (name == "head.weight") return {all("lm_head.weight", rows)};
  if (name == "head.norm.weight") return {all(prefix + "norm.weight", rows)};
  const std::size_t block_end = name.find('.', 7), last = name.rfind('.');
  const std::string block = fmt::format("{}layers.{}.", prefix, name.substr(7, block_end - 7)), kind = name.substr(last);
  const std::string part = name.substr(block_end + 1, last - block_end - 1);
  const std::int64_t query = s.heads * s.head_dim, key = s.kv_heads * s.head_dim;
  if (part == "attention_norm") return {all(block + "input_layernorm.weight", rows)};
  if (part == "mlp_norm") return {all(block + "post_attention_layernorm.weight", rows)};
  if (part == "attention.qkv") {
    return stack({{block + "self_attn.q_proj" + kind, query},
                  {block + "self_attn.k_proj" + kind, key},
                  {block + "self_attn.v_proj" + kind, key}});
  }
  if (part == "attention.query_norm") return {all(block + "self_attn.q_norm.weight", rows)};
  if (part == "attention.key_norm") return {all(block + "self_attn.k_norm.weight", rows)};
  if (part == "attention.output") return {all(block + "self_attn.o_proj" + kind, rows)};
  if (part == "mlp.up") return stack({{block + "mlp.gate_proj" + kind, s.ffn}, {block + "mlp.up_proj" + kind, s.ffn}});
  if (part == "mlp.down") return {all(block + "mlp.down_proj" + kind, rows)};
  throw InternalError("llama has no tensor for " + name);
}

std::string_view architecture_of(std::string_view family) {
  if (family == "mistral") return "MistralForCausalLM";
  if (family == "qwen3") return "Qwen3ForCausalLM";
  return family == "qwen2" ? "Qwen2ForCausalLM" : "LlamaForCausalLM";
}

}  // namespace

ForeignModel read_model(const std::filesystem::path& directory) {
  const std::string file = (directory / "config.json").string();
  const Json json = read_json_file(file, most_config_bytes);
  if (!json.is_object()) throw ConfigError(file + ": is not a JSON object");
  const JsonSource source{.name = file, .refuse = JsonSource::as_problem(file)};
  const Field f(json, source);
  ForeignModel foreign;
  foreign.family = f["model_type"].text_or("");
  if (std::ranges::find(families, foreign.family) == families.end())
    f.refuse("model_type", fmt::format("must be one of {}: plait computes no other family", fmt::join(families, ", ")));
  if (f.has("quantization_config")) f.refuse("quantization_config", "must be absent: plait reads no quantised weights");
  foreign.model.vocab = f["vocab_size"].whole(1, limits::vocab.most);
  foreign.family == "gpt2" ? read_gpt2(f, foreign) : read_llama(f, foreign);
  return foreign;
}

std::string family_of(const ModelConfig& m) {
  const auto refuse = [](const std::string& key, const std::string& value, const std::string& why) {
    throw ConfigError({{key, value, "has no form in transformers that plait writes: " + why, "", 0}});
  };
  const auto yes_or_no = [](bool value) { return std::string(value ? "true" : "false"); };
  if (m.position == Position::learned) {
    if (m.norm != NormKind::layer_norm)
      refuse("model.norm", std::string(to_string(m.norm)), "with learned positions, gpt2's is layer_norm");
    if (m.mlp != Mlp::gelu) refuse("model.mlp", std::string(to_string(m.mlp)), "with learned positions, gpt2's is gelu");
    if (!m.bias) refuse("model.bias", "false", "gpt2 has biases");
    if (!m.qkv_bias) refuse("model.qkv_bias", "false", "gpt2 has biases");
    if (m.qk_norm) refuse("model.qk_norm", "true", "gpt2 has no norm of queries and keys");
    if (m.kv_heads.value_or(m.heads) != m.heads)
      refuse("model.kv_heads", std::to_string(m.kv_heads), "gpt2 has as many as heads");
    if (!m.head_dim.is_auto() && m.head_dim * m.heads != m.hidden)
      refuse("model.head_dim", std::to_string(m.head_dim), "gpt2's is hidden / heads");
    if (!m.window.is_auto()) refuse("model.window", std::to_string(m.window), "gpt2's attention sees all before");
    return "gpt2";
  }
  if (m.norm != NormKind::rms_norm)
    refuse("model.norm", std::string(to_string(m.norm)), "with rotary positions, llama's is rms_norm");
  if (m.mlp != Mlp::swiglu) refuse("model.mlp", std::string(to_string(m.mlp)), "with rotary positions, llama's is swiglu");
  if (m.qk_norm) {
    if (m.bias) refuse("model.bias", "true", "qwen3, which has model.qk_norm, has no biases in the MLP");
    if (m.qkv_bias) refuse("model.qkv_bias", "true", "qwen3, which has model.qk_norm, has them in the attention output too");
    return "qwen3";
  }
  if (m.bias && !m.qkv_bias) refuse("model.bias", yes_or_no(m.bias), "without model.qkv_bias");
  if (m.qkv_bias && !m.bias) return "qwen2";
  if (m.window.is_auto()) {
    if (m.hidden % m.heads == 0) return "llama";
    // mistral without a window computes the same, and its heads may have any width.
    if (m.bias)
      refuse("model.heads", std::to_string(m.heads),
             fmt::format("llama's must divide model.hidden={}, and mistral has no biases", m.hidden));
    return "mistral";
  }
  if (m.bias || m.qkv_bias) refuse("model.window", std::to_string(m.window), "mistral, which has one, has no biases");
  if (!m.window_layers.empty() && std::ssize(m.window_layers) < m.layers)
    refuse("model.window_layers", fmt::format("{}", fmt::join(m.window_layers, ", ")), "mistral's window is in all layers");
  return "mistral";
}

std::string config_json(const ModelConfig& m, std::int64_t positions, const std::string& dtype) {
  const std::string family = family_of(m);
  nlohmann::ordered_json json;
  const std::int64_t kv_heads = m.kv_heads.value_or(m.heads), head_dim = m.head_dim.value_or(m.hidden / m.heads);
  const std::int64_t ffn = m.ffn.value_or(4 * m.hidden);
  if (family == "gpt2") {
    json = {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"n_embd", m.hidden},
            {"n_layer", m.layers},
            {"n_head", m.heads},
            {"n_inner", ffn},
            {"n_positions", positions},
            {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", m.norm_epsilon},
            {"resid_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"attn_pdrop", 0.0}};
  } else {
    json = {{"architectures", {std::string(architecture_of(family))}},
            {"model_type", family},
            {"hidden_size", m.hidden},
            {"num_hidden_layers", m.layers},
            {"num_attention_heads", m.heads},
            {"num_key_value_heads", kv_heads},
            {"head_dim", head_dim},
            {"intermediate_size", ffn},
            {"max_position_embeddings", positions},
            {"hidden_act", "silu"},
            {"rms_norm_eps", m.norm_epsilon},
            {"rope_theta", m.rope_base},
            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", m.rope_base}}},
            {"attention_dropout", 0.0}};
    if (m.rope_scaling.factor != 1) {
      json["rope_parameters"] = {{"rope_type", "llama3"},
                                 {"rope_theta", m.rope_base},
                                 {"factor", m.rope_scaling.factor},
                                 {"low_freq_factor", m.rope_scaling.low_freq_factor},
                                 {"high_freq_factor", m.rope_scaling.high_freq_factor},
                                 {"original_max_position_embeddings", m.rope_scaling.original_max_position}};
      json["rope_scaling"] = json["rope_parameters"];  // for transformers before 5
    }
    if (family == "llama") json["attention_bias"] = m.qkv_bias, json["mlp_bias"] = m.bias;
    if (family == "mistral") json["sliding_window"] = m.window.is_auto() ? nullptr : nlohmann::ordered_json(m.window.value());
    if (family.starts_with("qwen") && !m.window.is_auto()) {
      json["use_sliding_window"] = true, json["sliding_window"] = m.window.value();
      // Versions before layer_types have only one number: windows from that layer on.
      json["max_window_layers"] = m.window_layers.empty() ? 0 : m.window_layers.front();
      for (std::int64_t layer = 0; layer < m.layers; ++layer) {
        const bool has = m.window_layers.empty() || std::ranges::binary_search(m.window_layers, layer);
        json["layer_types"].push_back(has ? "sliding_attention" : "full_attention");
      }
    }
  }
  json["vocab_size"] = m.vocab.value();
  json["tie_word_embeddings"] = m.tie_embeddings;
  json["torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

std::vector<MappedParameter> map_parameters(const std::string& family, const model::ModelShape& shape,
                                            const std::string& prefix) {
  std::vector<MappedParameter> mapped;
  for (model::Parameter& parameter : model::parameters(shape)) {
    const std::int64_t rows = parameter.stored_shape[0];
    const bool matrix = parameter.stored_shape.rank() == 2;
    std::vector<Piece> pieces = family == "gpt2" ? gpt2_pieces(parameter.name, rows, matrix, prefix)
                                                 : llama_pieces(parameter.name, rows, shape, prefix);
    mapped.push_back({std::move(parameter), std::move(pieces)});
  }
  return mapped;
}

std::string usual_prefix(const std::string& family) { return family == "gpt2" ? "transformer." : "model."; }

bool is_buffer(const std::string& family, const std::string& tensor) {
  if (tensor.ends_with(".position_ids")) return true;
  if (family == "gpt2") return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias");
  return tensor.ends_with(".rotary_emb.inv_freq");
}

}  // namespace plait::interop
