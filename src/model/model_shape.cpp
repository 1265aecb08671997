#include "model/model_shape.h"

#include <algorithm>

#include "config/job_rules.h"
#include "core/axis.h"
#include "core/error.h"

namespace plait::model {

ModelShape resolve_shape(const ModelConfig& config, std::int64_t vocab, std::int64_t sequence, int tensor) {
  ModelShape shape;
  shape.layers = config.layers;
  shape.hidden = config.hidden;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads.value_or(config.heads);
  shape.head_dim = config.head_dim.value_or(config.hidden / config.heads);
  shape.ffn = config.ffn.value_or(4 * config.hidden);
  shape.vocab = config.vocab.value_or(vocab);
  shape.max_sequence = config.max_sequence.value_or(sequence);
  shape.norm = config.norm;
  shape.norm_epsilon = static_cast<float>(config.norm_epsilon);
  shape.mlp = config.mlp;
  shape.position = config.position;
  shape.rope_base = config.rope_base;
  shape.rope_scaling = {.factor = config.rope_scaling.factor,
                        .low_freq_factor = config.rope_scaling.low_freq_factor,
                        .high_freq_factor = config.rope_scaling.high_freq_factor,
                        .original_max_position = static_cast<double>(config.rope_scaling.original_max_position)};
  shape.tie_embeddings = config.tie_embeddings;
  shape.bias = config.bias;
  shape.qkv_bias = config.qkv_bias;
  shape.qk_norm = config.qk_norm;
  shape.window = config.window.value_or(0);
  shape.window_layers = config.window_layers;
  require_rules({.size = {{segment_axis, tensor}},
                 .heads = shape.heads,
                 .kv_heads = shape.kv_heads,
                 .ffn = shape.ffn,
                 .vocab = shape.vocab,
                 .max_sequence = shape.max_sequence,
                 .position = shape.position,
                 .tokenizer_vocab = vocab,
                 .sequence = sequence});
  const std::int64_t padding = ModelShape::vocab_padding * tensor;
  shape.padded_vocab = (shape.vocab + padding - 1) / padding * padding;
  return shape;
}

SegmentKind ModelShape::kind(int segment) const {
  require(segment >= 0 && segment < segments(), "ModelShape: the model has no such segment");
  if (segment == 0) return SegmentKind::embedding;
  if (segment == head_segment()) return SegmentKind::head;
  return segment % 2 == 1 ? SegmentKind::attention : SegmentKind::mlp;
}

int ModelShape::layer(int segment) const {
  const SegmentKind what = kind(segment);
  return what == SegmentKind::attention || what == SegmentKind::mlp ? (segment - 1) / 2 : -1;
}

std::int64_t ModelShape::window_of(int segment) const {
  require(kind(segment) == SegmentKind::attention, "ModelShape: a window is of an attention segment");
  return window_layers.empty() || std::ranges::binary_search(window_layers, layer(segment)) ? window : 0;
}

double ModelShape::mean_keys(int segment, std::int64_t sequence) const {
  const auto all = static_cast<double>(sequence), seen = static_cast<double>(window_of(segment));
  // The first rows, up to the window, see half of it on average; the others see all of it.
  return seen == 0 || seen >= all ? all / 2 : seen - seen * seen / (2 * all);
}

ModelShape ModelShape::local(int tensor) const {
  ModelShape part = *this;
  part.heads /= tensor;
  part.kv_heads /= tensor;
  part.ffn /= tensor;
  part.padded_vocab /= tensor;
  return part;
}

}  // namespace plait::model
