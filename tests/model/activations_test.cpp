// The tensors kept from forward to backward.
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

// Without recomputation, inputs of products keep one byte per element instead of two. Attention's output is kept too, for
// attention's own backward.
TEST(Activations, OfWhatFp8ProductsReadTheOperandsAreKept) {
  ModelShape s;
  s.layers = 2, s.hidden = 64, s.heads = 8, s.kv_heads = 2, s.head_dim = 16, s.ffn = 128, s.vocab = s.padded_vocab = 128;
  const auto saved = [&](int segment, bool fp8) {
    const SegmentSizes sizes{s, {0, 1, false}, {4, 32}, DType::bf16, Recompute::none, fp8};
    std::size_t bytes = 0;
    for (const std::vector<TensorSpec>& specs : {norm_specs(sizes, segment), activation_specs(sizes, segment)}) {
      for (const TensorSpec& spec : specs) bytes += spec.keep == Keep::saved && spec.dtype != DType::f32 ? spec.bytes() : 0;
    }
    return bytes;
  };
  const std::size_t rows = 4 * 32;
  EXPECT_EQ(saved(1, true), saved(1, false) - rows * 64 + rows * 8 * 16);
  EXPECT_EQ(saved(2, true), saved(2, false) - rows * 64 - rows * 128);
  EXPECT_EQ(saved(5, true), saved(5, false)) << "the head has no FP8 products";
}

// Ranks that split rows round and gather the inputs of first products: the norm's output, and the gradient of the segment's
// output unless that is received. The head and the embedding have no such products.
TEST(Activations, OperandsOfFirstProductsAreGatheredInFp8) {
  ModelShape s;
  s.layers = 2, s.hidden = 64, s.heads = s.kv_heads = 8, s.head_dim = 8, s.ffn = 128, s.vocab = s.padded_vocab = 128;
  const int head = s.head_segment();
  const auto gathered = [&](bool fp8, bool sequence_parallel, int segment, bool received) {
    const SegmentSizes sizes{s, {1, 2, sequence_parallel}, {4, 32}, DType::bf16, Recompute::none, fp8};
    std::string names;
    std::vector<TensorSpec> all = norm_specs(sizes, segment);
    for (const TensorSpec& spec : gradient_specs(sizes, segment, received)) all.push_back(spec);
    for (const TensorSpec& spec : all) {
      if (spec.gathered) names += spec.name + " " + std::string(to_string(spec.dtype)) + spec.shape.to_string() + " ";
      if (spec.shape != Shape{64, 64}) continue;  // own rows
      EXPECT_EQ(spec.split, Split::residual) << spec.name;
    }
    return names;
  };
  const std::string norm = "norm_out bf16[128, 64] ", output = "output bf16[128, 64] ";
  const std::string operands = "norm_values e4m3[128, 64] output_values e4m3[128, 64] ";
  for (const int segment : {1, 2}) {
    EXPECT_EQ(gathered(true, true, segment, false), operands);
    EXPECT_EQ(gathered(true, true, segment, true), "norm_values e4m3[128, 64] " + output);
    EXPECT_EQ(gathered(false, true, segment, false), norm + output);
    EXPECT_EQ(gathered(true, false, segment, false), "");
  }
  EXPECT_EQ(gathered(true, true, 0, false), output);
  EXPECT_EQ(gathered(true, true, head, false), norm);
}

}  // namespace
}  // namespace plait::model
