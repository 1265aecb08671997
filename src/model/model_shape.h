// The sizes of one transformer, resolved from the configuration, and its chain of segments.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "config/config.h"
#include "core/dtype.h"
#include "core/names.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace plait::model {

using plait::Mlp;
using plait::Position;
using plait::Recompute;

// A segment is the computation between two points of the residual stream. In the order of the model: the embedding, attention
// and MLP of each layer in turn, the head (final norm, logits, loss).
enum class SegmentKind { embedding, attention, mlp, head };

constexpr bool reads_tokens(SegmentKind kind) { return kind == SegmentKind::embedding; }
constexpr bool reads_targets(SegmentKind kind) { return kind == SegmentKind::head; }
// True if the segment needs the batch: its tokens, its targets, or the starts of its documents.
constexpr bool reads_batch(SegmentKind kind, Documents documents) {
  return reads_tokens(kind) || reads_targets(kind) || (documents == Documents::separate && kind == SegmentKind::attention);
}
// True if the segment has an input, the residual stream, which it norms first; it then has an input gradient too.
constexpr bool has_norm(SegmentKind kind) { return kind != SegmentKind::embedding; }
// True if its output is the residual stream, so other segments follow.
constexpr bool has_output(SegmentKind kind) { return kind != SegmentKind::head; }

struct ModelShape {
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  std::int64_t vocab = 0;         // tokens
  std::int64_t padded_vocab = 0;  // rows of the embedding table and columns of the logits: vocab rounded up to a multiple of
                                  // vocab_padding × tensor-parallel ranks
  std::int64_t max_sequence = 0;  // rows of the learned position table
  ops::NormKind norm = ops::NormKind::layer_norm;
  float norm_epsilon = 1e-5f;
  Mlp mlp = Mlp::gelu;
  Position position = Position::learned;
  double rope_base = 10000.0;
  ops::RopeScaling rope_scaling;
  bool tie_embeddings = true;
  bool bias = true, qkv_bias = true, qk_norm = false;
  std::int64_t window = 0;                  // of attention, in tokens; 0: none
  std::vector<std::int64_t> window_layers;  // layers with the window; empty: all

  static constexpr std::int64_t vocab_padding = 128;

  std::int64_t qkv_dim() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t attention_dim() const { return heads * head_dim; }
  // Columns of the first MLP product: gate and up side by side for SwiGLU.
  std::int64_t up_dim() const { return mlp == Mlp::swiglu ? 2 * ffn : ffn; }

  // The part of one of `tensor` tensor-parallel ranks: its heads, MLP columns and rows of the vocabulary. Everything else,
  // including `vocab`, is as in the whole model.
  ModelShape local(int tensor) const;

  // A model is a chain of segments with the residual stream between them, where pipeline stages may be cut.
  int segments() const { return 2 * static_cast<int>(layers) + 2; }
  int head_segment() const { return segments() - 1; }
  SegmentKind kind(int segment) const;
  // The window of an attention segment: the keys that a token sees, itself included. 0: all keys up to itself.
  std::int64_t window_of(int segment) const;
  // The mean number of keys that a token sees in a sequence of `sequence` tokens, counted as an area: half of it without a
  // window.
  double mean_keys(int segment, std::int64_t sequence) const;
  // True if all attention segments are alike.
  bool same_window() const { return window == 0 || window_layers.empty() || std::ssize(window_layers) == layers; }
  // The transformer block, from 0, of an attention or MLP segment; -1 for others.
  int layer(int segment) const;
};

// One rank's place in its tensor-parallel group.
struct TensorSplit {
  int rank = 0, size = 1;
  // Norms and the residual stream are split by rows (tokens): each rank holds 1 / size of every [rows, hidden] tensor of the
  // residual stream (Korthikanti et al. 2022). Off, every rank holds all of it. Never on in a group of one.
  bool sequence_parallel = false;
};

// `vocab` and `sequence` are used if the configuration gives no vocabulary (the tokenizer's is used) or no max_sequence.
// `tensor`: size of the tensor-parallel group. ConfigError if these break a rule (config/job_rules.h).
ModelShape resolve_shape(const ModelConfig& config, std::int64_t vocab, std::int64_t sequence, int tensor = 1);

}  // namespace plait::model

namespace plait {
template <>
inline constexpr auto names<model::SegmentKind> =
    std::to_array<Name<model::SegmentKind>>({{model::SegmentKind::embedding, "embedding"},
                                             {model::SegmentKind::attention, "attention"},
                                             {model::SegmentKind::mlp, "mlp"},
                                             {model::SegmentKind::head, "head"}});
}  // namespace plait
