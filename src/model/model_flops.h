// FLOPs that a training step needs, by the model rather than by the program: recompute is not counted.
#pragma once

#include <cstdint>

#include "model/model_shape.h"

namespace plait::model {

// Per token:   6 · N  +  12 · heads · head_dim · keys
//
// N: parameters of the matrices that multiply every token, the head (or the tied embedding in its role) included and its
// padding too, since it is computed with. An untied input embedding and learned positions are looked up and multiply
// nothing. A token costs 2 FLOPs per parameter forward and 4 backward.
// Attention: scores and weighted sum are 2 · 2 · heads · head_dim FLOPs forward and twice that backward for each key that a
// token sees. keys: how many these are on average, over all layers; half of the sequence where attention is causal, hence half
// of what PaLM counts (Chowdhery et al. 2022, appendix B), and less with a window. Separate documents count as one: how many
// there are is up to the data.
//
// Peers differ by under 1 %: llm.c puts all parameters in N (GPT-2 124M: 0.803 GFLOP per token instead of 0.798); llm.q
// counts as above (Qwen2.5-0.5B: 3.10, 1.5B: 9.53 at sequence 1024).
struct FlopTerms {
  std::int64_t matrix_parameters = 0, block_parameters = 0;  // the latter: of attention and MLP, which are among them
  std::int64_t heads = 0, head_dim = 0;
  double keys = 0;
};
double model_flops_per_token(const FlopTerms& terms);

// The terms of a whole model, whatever part of it a rank computes.
FlopTerms flop_terms(const ModelShape& shape, std::int64_t sequence);

// Of the output projection, which may be the tied embedding: padded.
std::int64_t head_parameters(const ModelShape& shape);

// The peak of a device at the mix of FLOPs that a model is: products of attention and MLP at `product_peak` (FP8 perhaps), all
// else at `peak`.
double mixed_peak_flops(const FlopTerms& terms, double product_peak, double peak);

// Model FLOP utilisation: what the devices achieved of their peak, 0..1.
double model_flops_utilization(double flops_per_token, double tokens_per_second, int devices, double peak_flops_per_device);

}  // namespace plait::model
