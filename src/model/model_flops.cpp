#include "model/model_flops.h"

namespace plait::model {

double model_flops_per_token(const FlopTerms& terms) {
  const double attention = static_cast<double>(terms.heads * terms.head_dim) * terms.keys;
  return 6.0 * static_cast<double>(terms.matrix_parameters) + 12.0 * attention;
}

std::int64_t head_parameters(const ModelShape& shape) {
  // The padding is that on one device, so that a layout with more padding does not seem to compute more.
  constexpr std::int64_t padding = ModelShape::vocab_padding;
  return (shape.vocab + padding - 1) / padding * padding * shape.hidden;
}

FlopTerms flop_terms(const ModelShape& shape, std::int64_t sequence) {
  const std::int64_t attention = shape.hidden * shape.qkv_dim() + shape.attention_dim() * shape.hidden;
  const std::int64_t mlp = shape.hidden * shape.up_dim() + shape.ffn * shape.hidden;
  double keys = 0;
  for (int segment = 0; segment < shape.segments(); ++segment) {
    if (shape.kind(segment) == SegmentKind::attention) keys += shape.mean_keys(segment, sequence);
  }
  const std::int64_t blocks = shape.layers * (attention + mlp);
  return {blocks + head_parameters(shape), blocks, shape.heads, shape.head_dim, keys};
}

double mixed_peak_flops(const FlopTerms& terms, double product_peak, double peak) {
  const double all = model_flops_per_token(terms), products = 6.0 * static_cast<double>(terms.block_parameters);
  return all / (products / product_peak + (all - products) / peak);
}

double model_flops_utilization(double flops_per_token, double tokens_per_second, int devices, double peak_flops_per_device) {
  return flops_per_token * tokens_per_second / (static_cast<double>(devices) * peak_flops_per_device);
}

}  // namespace plait::model
