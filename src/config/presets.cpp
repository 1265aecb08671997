// Published model shapes. What a preset leaves open is derived: kv_heads = heads, head_dim = hidden / heads, ffn = 4 *
// hidden.
#include "config/schema.h"

namespace plait {
namespace config {
namespace {

// GPT-2 (Radford et al. 2019): LayerNorm, learned positions, GELU, biases everywhere, tied embeddings.
Preset gpt2(std::string name, std::string meaning, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
            std::int64_t max_sequence = 1024) {
  ModelConfig model;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.vocab = 50257;
  model.max_sequence = max_sequence;
  return {std::move(name), std::move(meaning), model};
}

// RMSNorm, RoPE, SwiGLU and grouped KV heads, without biases: what Llama 3, Qwen 2.5 and Qwen 3 share.
ModelConfig rope_family(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn) {
  ModelConfig model;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.ffn = ffn;
  model.norm = NormKind::rms_norm;
  model.mlp = Mlp::swiglu;
  model.position = Position::rope;
  model.bias = false;
  model.qkv_bias = false;
  return model;
}

// Llama 3 (Dubey et al. 2024). The frequency scaling that 3.1 and later apply beyond 8192 tokens is not part of the shape.
Preset llama3(std::string name, std::string meaning, ModelConfig model, bool tie_embeddings) {
  model.vocab = 128256;
  model.norm_epsilon = 1e-5;
  model.rope_base = 500000.0;
  model.tie_embeddings = tie_embeddings;
  return {std::move(name), std::move(meaning), model};
}

// Qwen 2.5 (Yang et al. 2024), the sizes with tied embeddings.
Preset qwen25(std::string name, std::string meaning, ModelConfig model) {
  model.vocab = 151936;
  model.norm_epsilon = 1e-6;
  model.rope_base = 1e6;
  model.qkv_bias = true;
  model.tie_embeddings = true;
  return {std::move(name), std::move(meaning), model};
}

// Qwen 3 (Yang et al. 2025): heads are 128 wide whatever the residual stream is, and normed instead of biased.
Preset qwen3(std::string name, std::string meaning, ModelConfig model, bool tie_embeddings) {
  model.head_dim = 128;
  model.vocab = 151936;
  model.norm_epsilon = 1e-6;
  model.rope_base = 1e6;
  model.qk_norm = true;
  model.tie_embeddings = tie_embeddings;
  return {std::move(name), std::move(meaning), model};
}

// 2.78 billion parameters, with an output projection of its own: no weight is shared between the first and the last stage.
Preset gpt_2800m() {
  Preset preset = gpt2("gpt-2.8b", "GPT-2 family, 2.78 billion parameters", 32, 2560, 20, 2048);
  preset.model.tie_embeddings = false;
  return preset;
}

Preset tiny() {
  ModelConfig model;
  model.layers = 4;
  model.hidden = 128;
  model.heads = 4;
  return {"tiny", "GPT-2 family, seconds per run on a CPU; the vocabulary is the tokenizer's", model};
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      tiny(),
      gpt2("gpt2-124m", "GPT-2", 12, 768, 12),
      gpt2("gpt2-355m", "GPT-2 medium", 24, 1024, 16),
      gpt2("gpt2-774m", "GPT-2 large", 36, 1280, 20),
      gpt2("gpt2-1558m", "GPT-2 XL", 48, 1600, 25),
      gpt_2800m(),
      llama3("llama3-1b", "Llama 3.2 1B", rope_family(16, 2048, 32, 8, 8192), true),
      llama3("llama3-8b", "Llama 3 8B", rope_family(32, 4096, 32, 8, 14336), false),
      qwen25("qwen2.5-0.5b", "Qwen2.5 0.5B", rope_family(24, 896, 14, 2, 4864)),
      qwen25("qwen2.5-1.5b", "Qwen2.5 1.5B", rope_family(28, 1536, 12, 2, 8960)),
      qwen3("qwen3-0.6b", "Qwen3 0.6B", rope_family(28, 1024, 16, 8, 3072), true),
      qwen3("qwen3-1.7b", "Qwen3 1.7B", rope_family(28, 2048, 16, 8, 6144), true),
      qwen3("qwen3-4b", "Qwen3 4B", rope_family(36, 2560, 32, 8, 9728), true),
      qwen3("qwen3-8b", "Qwen3 8B", rope_family(36, 4096, 32, 8, 12288), false),
  };
  return all;
}

}  // namespace config

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const config::Preset& preset : config::presets()) names.push_back(preset.name);
  return names;
}

}  // namespace plait
