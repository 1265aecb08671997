#include "parallel/flat_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  FlatLayout layout_of(int rank, int zero) const {
    return FlatLayout(
        list, {.data = {rank, data_size(), zero}, .bucket_bytes = std::get<1>(GetParam()), .gradient_type = DType::f32});
  }
  FlatLayout layout = layout_of(0, 0);
};

TEST_P(FlatLayoutTest, BucketsTileTheBufferInBackwardOrder) {
  std::int64_t at = 0;
  int segment = shape().head_segment();
  for (const Bucket& b : layout.buckets()) {
    EXPECT_EQ(b.range.first, at);
    EXPECT_EQ(b.range.count % (data_size() * FlatLayout::alignment), 0);
    for (const int in_bucket : b.segments) {
      EXPECT_LE(in_bucket, segment);
      segment = in_bucket;
    }
    at = b.range.end();
  }
  EXPECT_EQ(at, layout.elements());
  EXPECT_EQ(segment, 0);
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
      const bool of_block = std::find(b.segments.begin(), b.segments.end(), list[i].segment) != b.segments.end();
      inside |= r.first >= b.range.first && r.end() <= b.range.end() && of_block;
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
    for (const FlatLayout::StatePiece& piece : layout_of(rank, 1).state_pieces()) {
      EXPECT_EQ(piece.flat_first, layout.parameter(piece.parameter).first + piece.parameter_first);
      EXPECT_GE(piece.state_first, state);
      state = piece.state_first + piece.count;
      count[piece.parameter] += piece.count;
    }
    EXPECT_LE(state, layout.shard_elements());
    EXPECT_EQ(layout_of(rank, 1).state_elements(), layout.shard_elements());
  }
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(count[i], list[i].stored) << list[i].name;
}

TEST_P(FlatLayoutTest, WithoutShardingTheStateHasTheFlatLayout) {
  for (const FlatLayout::StatePiece& piece : layout.state_pieces()) EXPECT_EQ(piece.flat_first, piece.state_first);
}

TEST_P(FlatLayoutTest, ZeRO2KeepsShardsOfGradientsAndTwoBucketsOfWholeOnes) {
  std::map<std::size_t, std::int64_t> counted;
  for (int rank = 0; rank < data_size(); ++rank) {
    const FlatLayout sharded = layout_of(rank, 2);
    EXPECT_EQ(sharded.kept_gradient_elements(), sharded.shard_elements());
    std::int64_t largest = 0, elements = 0;
    for (const Bucket& b : sharded.buckets()) largest = std::max(largest, b.range.count);
    EXPECT_LE(sharded.whole_gradient_elements(), 2 * largest);
    for (const FlatLayout::StatePiece& piece : sharded.state_pieces()) EXPECT_EQ(piece.gradient_first, piece.state_first);
    for (const Range& range : sharded.norm_ranges()) elements += range.count;
    counted[0] += elements;
    // A segment's gradients are in one bucket and neighbours in different places.
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (list[i].segment != list[j].segment) continue;
        EXPECT_EQ(sharded.bucket_of(i), sharded.bucket_of(j));
      }
    }
    for (std::size_t b = 1; b < sharded.buckets().size(); ++b)
      EXPECT_NE(sharded.buckets()[b].place, sharded.buckets()[b - 1].place);
  }
  std::int64_t all = 0;
  for (const model::Parameter& p : list) all += p.shape.elements();
  EXPECT_EQ(counted[0], all);
}

INSTANTIATE_TEST_SUITE_P(Sizes, FlatLayoutTest,
                         testing::Combine(testing::Values(1, 2, 3, 8), testing::Values<std::int64_t>(1, 4096, 1 << 30)));

}  // namespace
}  // namespace plait::parallel
