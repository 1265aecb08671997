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

// Without recomputation: one byte of what products read instead of two. What attention wrote its own backward reads as well.
TEST(Activations, OfWhatFp8ProductsReadTheOperandsAreKept) {
  ModelShape s;
  s.layers = 2, s.hidden = 64, s.heads = 8, s.kv_heads = 2, s.head_dim = 16, s.ffn = 128, s.vocab = s.padded_vocab = 128;
  const auto saved = [&](int segment, bool fp8) {
    const SegmentSizes sizes{s, {0, 1, false}, {4, 32}, DType::bf16, Recompute::none, fp8};
    std::size_t bytes = 0;
    for (const std::vector<TensorSpec>& specs : {norm_specs(sizes, segment), activation_specs(sizes, segment)}) {
      for (const TensorSpec& spec : specs) bytes += spec.keep == Keep::saved && spec.name != "scales" ? spec.bytes() : 0;
    }
    return bytes;
  };
  const std::size_t rows = 4 * 32;
  EXPECT_EQ(saved(1, true), saved(1, false) - rows * 64 + rows * 8 * 16);
  EXPECT_EQ(saved(2, true), saved(2, false) - rows * 64 - rows * 128);
  EXPECT_EQ(saved(5, true), saved(5, false)) << "the head has no FP8 products";
}

}  // namespace
}  // namespace plait::model
