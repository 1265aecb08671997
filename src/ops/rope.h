// Rotary position embedding (Su et al. 2021), in place on the query and key heads of a packed qkv buffer.
//
// Pairs are (i, i + head_dim / 2) as in Llama and GPT-NeoX; angle = position * base^(-2 i / head_dim), with positions as
// ops/attention_shape.h counts them. Values are untouched.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/attention.h"

namespace plait::ops {

// Llama 3.1's frequencies for longer sequences (meta-llama/llama-models, apply_scaling). A frequency that turns fewer than
// `low_freq_factor` times in `original_max_position` positions is divided by `factor`, one that turns more than
// `high_freq_factor` times is kept, and in between the two are mixed in proportion. factor 1: all are kept.
struct RopeScaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4, original_max_position = 8192;
};

// table[sequence, head_dim]: cos in the first half of each row, sin in the second; f32 (f64 for f64 compute). Computed on the
// host once per model and copied to the device by the caller.
void rope_table(double base, const RopeScaling& scaling, View host_table);

struct Rope {
  AttentionShape shape;
  View table, starts;
  View qkv;              // rotated in place; packed as in attention.h
  bool inverse = false;  // rotates back: the backward pass, applied to dqkv
};
void rope(StreamRef stream, const Rope& args);

}  // namespace plait::ops
