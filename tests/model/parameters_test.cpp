#include "model/parameters.h"

#include <gtest/gtest.h>

#include <set>

namespace plait::model {
namespace {

ModelShape gpt2_124m() {
  ModelShape s;
  s.layers = 12, s.hidden = 768, s.heads = 12, s.kv_heads = 12, s.head_dim = 64, s.ffn = 3072;
  s.vocab = 50257, s.padded_vocab = 50304, s.max_sequence = 1024;
  return s;
}

TEST(Parameters, Gpt2HasItsPublishedSize) {
  std::int64_t stored = 0;
  for (const Parameter& p : parameters(gpt2_124m())) stored += p.stored;
  EXPECT_EQ(stored, 124439808);
}

TEST(Parameters, NamesAreUniqueAndBlocksAscend) {
  std::set<std::string> names;
  int segment = 0;
  for (const Parameter& p : parameters(gpt2_124m())) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    EXPECT_GE(p.segment, segment);
    segment = p.segment;
  }
}

TEST(Parameters, OnlyMatricesDecay) {
  for (const Parameter& p : parameters(gpt2_124m())) {
    EXPECT_EQ(p.decay, p.shape.rank() == 2 && p.name != "embedding.positions.weight") << p.name;
  }
}

// Even the narrowest ones.
TEST(Parameters, MatricesOfOneColumnAreMatrices) {
  ModelShape s = gpt2_124m();
  s.layers = 1, s.hidden = 1, s.heads = 2, s.kv_heads = 2, s.head_dim = 2, s.ffn = 2;
  s.bias = s.qkv_bias = true;
  for (const TensorSplit& split : {TensorSplit{}, TensorSplit{1, 2, false}}) {
    for (const Parameter& p : parameters(s, split, {0, 1, 2, 3})) {
      const bool is_matrix = p.name.ends_with(".weight") && !p.norm;
      EXPECT_EQ(p.shape.rank(), is_matrix ? 2 : 1) << p.name;
      EXPECT_EQ(p.stored_shape.rank(), p.shape.rank()) << p.name;
    }
  }
}

// A rank sees only its own heads, so the sum over the tensor group completes the gradients of their gains, and one rank counts
// for all.
TEST(Parameters, WhatIsOfOwnHeadsOrOwnRowsIsPartOfASumOverTheTensorGroup) {
  ModelShape s = gpt2_124m();
  s.qk_norm = true;
  for (const bool sequence_parallel : {false, true}) {
    int gains = 0;
    for (const Parameter& p : parameters(s, {1, 4, sequence_parallel}, {1})) {
      const bool gain = p.name == "blocks.0.attention.query_norm.weight" || p.name == "blocks.0.attention.key_norm.weight";
      const bool of_rows = p.norm || p.name == "blocks.0.attention.output.bias";
      EXPECT_EQ(p.partial.contains(Axis::tensor), gain || (of_rows && sequence_parallel)) << p.name;
      if (!gain) continue;
      ++gains;
      EXPECT_EQ(p.shape, Shape{64});
      EXPECT_EQ(p.init, Init::one);
      EXPECT_TRUE(p.replica && !p.decay && !p.norm);
    }
    EXPECT_EQ(gains, 2);
  }
  for (const Parameter& p : parameters(s)) EXPECT_FALSE(p.partial.contains(Axis::tensor) || p.replica) << p.name;
}

TEST(Parameters, InitialValuesDoNotDependOnThePieceAskedFor) {
  const Parameter p = parameters(gpt2_124m()).front();
  std::vector<float> whole(1000), part(37);
  initial_values(p, 5, 100, whole);
  for (std::int64_t first : {100, 101, 102, 103, 517, 1063}) {
    initial_values(p, 5, first, part);
    for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[static_cast<std::size_t>(first) - 100 + i]);
  }
  std::vector<float> other(1000);
  initial_values(p, 6, 100, other);
  EXPECT_NE(whole, other);
}

TEST(Parameters, PaddedRowsStartAtZero) {
  const Parameter p = parameters(gpt2_124m()).front();
  std::vector<float> values(1000);
  initial_values(p, 5, p.stored - 500, values);
  EXPECT_NE(values[499], 0.0f);
  for (std::size_t i = 500; i < values.size(); ++i) ASSERT_EQ(values[i], 0.0f);
}

}  // namespace
}  // namespace plait::model
