// What is kept from forward to backward.
#include "model/activations.h"

#include <gtest/gtest.h>

namespace plait::model {
namespace {

std::size_t saved_by_attention(bool qk_norm, Recompute recompute) {
  ModelShape s;
  s.layers = 2, s.hidden = 64, s.heads = 8, s.kv_heads = 2, s.head_dim = 16, s.ffn = 128, s.vocab = s.padded_vocab = 128;
  s.qk_norm = qk_norm;
  std::size_t bytes = 0;
  for (const TensorSpec& spec : activation_specs({s, {0, 2, true}, {4, 32}, DType::bf16, recompute}, 1))
    if (spec.keep == Keep::saved) bytes += spec.bytes();
  return bytes;
}

TEST(Activations, NormedHeadsCostMemoryOnlyWithoutRecomputation) {
  const std::size_t qkv = 4 * 32 * (8 + 2 * 2) / 2 * 16 * 2;  // of one rank
  EXPECT_EQ(saved_by_attention(true, Recompute::none), saved_by_attention(false, Recompute::none) + qkv);
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    EXPECT_EQ(saved_by_attention(true, recompute), saved_by_attention(false, recompute));
}

}  // namespace
}  // namespace plait::model
