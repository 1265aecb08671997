#include "parallel/flat_layout.h"

#include <gtest/gtest.h>

#include <map>

namespace plait::parallel {
namespace {

model::ModelShape shape() {
  model::ModelShape s;
  s.layers = 3, s.hidden = 40, s.heads = 5, s.kv_heads = 5, s.head_dim = 8, s.ffn = 72, s.vocab = 101, s.padded_vocab = 128;
  s.max_sequence = 17;
  return s;
}

class FlatLayoutTest : public testing::TestWithParam<std::tuple<int, std::int64_t>> {
 protected:
  int data_size() const { return std::get<0>(GetParam()); }
  std::vector<model::Parameter> list = model::parameters(shape());
  FlatLayout layout{list, data_size(), std::get<1>(GetParam()), DType::f32};
};

TEST_P(FlatLayoutTest, BucketsTileTheBufferInBackwardOrder) {
  std::int64_t at = 0;
  int block = shape().head_block();
  for (const Bucket& b : layout.buckets()) {
    EXPECT_EQ(b.range.first, at);
    EXPECT_EQ(b.range.count % (data_size() * FlatLayout::alignment), 0);
    EXPECT_LE(b.first_block, block);
    EXPECT_LE(b.last_block, b.first_block);
    block = b.last_block;
    at = b.range.end();
  }
  EXPECT_EQ(at, layout.elements());
  EXPECT_EQ(block, 0);
}

TEST_P(FlatLayoutTest, ParametersAreAlignedDisjointAndInsideABucketOfTheirBlock) {
  std::map<std::int64_t, std::int64_t> taken;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Range r = layout.parameter(i);
    EXPECT_EQ(r.first % FlatLayout::alignment, 0);
    EXPECT_EQ(r.count, list[i].shape.elements());
    taken[r.first] = r.end();
    bool inside = false;
    for (const Bucket& b : layout.buckets()) {
      inside |= r.first >= b.range.first && r.end() <= b.range.end() && list[i].block >= b.last_block && list[i].block <= b.first_block;
    }
    EXPECT_TRUE(inside) << list[i].name;
  }
  std::int64_t end = 0;
  for (const auto& [first, last] : taken) {
    EXPECT_GE(first, end);
    end = last;
  }
}

TEST_P(FlatLayoutTest, ShardsHoldEveryStoredElementExactlyOnce) {
  std::map<std::size_t, std::int64_t> count;
  for (int rank = 0; rank < data_size(); ++rank) {
    std::int64_t state = 0;
    for (const FlatLayout::StatePiece& piece : layout.state_pieces(rank, true)) {
      EXPECT_EQ(piece.flat_first, layout.parameter(piece.parameter).first + piece.parameter_first);
      EXPECT_GE(piece.state_first, state);
      state = piece.state_first + piece.count;
      count[piece.parameter] += piece.count;
    }
    EXPECT_LE(state, layout.shard_elements());
  }
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(count[i], list[i].stored) << list[i].name;
}

TEST_P(FlatLayoutTest, WithoutShardingTheStateHasTheFlatLayout) {
  for (const FlatLayout::StatePiece& piece : layout.state_pieces(0, false)) EXPECT_EQ(piece.flat_first, piece.state_first);
}

INSTANTIATE_TEST_SUITE_P(Sizes, FlatLayoutTest,
                         testing::Combine(testing::Values(1, 2, 3, 8), testing::Values<std::int64_t>(1, 4096, 1 << 30)));

}  // namespace
}  // namespace plait::parallel
