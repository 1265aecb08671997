// The FLOPs of a training step, as the model requires them: recomputation is not counted.
#pragma once

#include <cstdint>

#include "model/model_shape.h"

namespace plait::model {

// Per token:   6 · N  +  12 · heads · head_dim · keys
//
// N: parameters of the matrices that multiply every token, including the head (or the tied embedding in its role) with its
// padding, which is computed too. An untied input embedding and learned positions are looked up and multiply nothing. A token
// costs 2 FLOPs per parameter forward and 4 backward.
// Attention: for each key that a token sees, scores and weighted sum are 2 · 2 · heads · head_dim FLOPs forward and twice that
// backward. keys: the mean number of keys, summed over all layers. Causal attention sees half of the sequence on average, hence
// half of PaLM's count (Chowdhery et al. 2022, appendix B), and a window less. Separate documents count as one, since their
// number depends on the data.
//
// Peers differ by under 1 %: llm.c puts all parameters in N (GPT-2 124M: 0.803 GFLOP per token instead of 0.798); llm.q
// counts as above (Qwen2.5-0.5B: 3.10, 1.5B: 9.53 at sequence 1024).
struct FlopTerms {
  std::int64_t matrix_parameters = 0, block_parameters = 0;  // the latter: of attention and MLP, part of the former
  std::int64_t heads = 0, head_dim = 0;
  double keys = 0;
};
double model_flops_per_token(const FlopTerms& terms);

// The terms of the whole model, not of one rank's part.
FlopTerms flop_terms(const ModelShape& shape, std::int64_t sequence);

// Parameters of the output projection, which may be the tied embedding; padded.
std::int64_t head_parameters(const ModelShape& shape);

// The peak of a device for the model's mix of FLOPs: products of attention and MLP at `product_peak` (possibly FP8), the rest
// at `peak`.
double mixed_peak_flops(const FlopTerms& terms, double product_peak, double peak);

// Model FLOP utilisation: the achieved share of the devices' peak, 0..1.
double model_flops_utilization(double flops_per_token, double tokens_per_second, int devices, double peak_flops_per_device);

}  // namespace plait::model
