// Rotary position embedding (Su et al. 2021), in place on the query and key heads of a packed qkv buffer.
//
// Pairs are (i, i + head_dim / 2) as in Llama and GPT-NeoX; angle = position * base^(-2 i / head_dim). Values are untouched.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/attention.h"

namespace plait::ops {

// table[sequence, head_dim]: cos in the first half of each row, sin in the second; f32 (f64 for f64 compute). Computed on the
// host once per model and copied to the device by the caller.
void rope_table(double base, View host_table);

struct Rope {
  AttentionShape shape;
  View table;
  View qkv;              // rotated in place; packed as in attention.h
  bool inverse = false;  // rotates back: the backward pass, applied to dqkv
};
void rope(StreamRef stream, const Rope& args);

}  // namespace plait::ops
