#include "parallel/flat_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

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
    return FlatLayout(list, {.layout = {{Axis::data, data_size()}},
                             .rank = rank,
                             .zero = zero,
                             .bucket_bytes = std::get<1>(GetParam()),
                             .gradient_type = DType::f32});
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
    // A segment's gradients are in one bucket, and neighbouring buckets have different places.
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

// These numbers choose the random numbers for rounding moments: each is the element's own in the whole parameter, on every rank
// of every layout.
TEST_P(FlatLayoutTest, ElementsAreNumberedAsInTheWholeParameter) {
  model::ModelShape s = shape();
  s.heads = s.kv_heads = 4, s.head_dim = 10, s.mlp = Mlp::swiglu;
  const std::vector<model::Parameter> whole = model::parameters(s);
  std::map<std::string, std::uint64_t> keys;
  for (const int tensor : {1, 2, 4}) {
    for (const int zero : {0, 1}) {
      std::map<std::uint64_t, std::map<std::int64_t, int>> seen;
      for (int rank = 0; rank < tensor * data_size(); ++rank) {
        const std::vector<int> segments = {0, 1, 2, 3, 4, 5, 6, 7};
        const std::vector<model::Parameter> part = model::parameters(s, {rank % tensor, tensor, false}, segments);
        const FlatLayout flat(part, {.layout = {{Axis::data, data_size()}, {Axis::tensor, tensor}},
                                     .rank = rank,
                                     .zero = zero,
                                     .bucket_bytes = std::get<1>(GetParam())});
        const std::vector<ops::AdamWRange> ranges = flat.adamw_ranges();
        auto range = ranges.begin();
        for (const FlatLayout::StatePiece& piece : flat.state_pieces()) {
          const model::Parameter& parameter = part[piece.parameter];
          // The ranges of a piece tile it.
          std::vector<std::int64_t> numbers;
          for (std::int64_t done = 0; done < piece.count; done += range->count, ++range) {
            ASSERT_NE(range, ranges.end());
            ASSERT_EQ(range->offset, piece.flat_first + done);
            ASSERT_EQ(range->gradient_offset, piece.gradient_first + done);
            ASSERT_EQ(range->state_offset, piece.state_first + done);
            EXPECT_EQ(range->decay, parameter.decay);
            EXPECT_EQ(keys.try_emplace(parameter.name, range->numbers.key).first->second, range->numbers.key);
            for (std::int64_t k = 0; k < range->count; ++k) numbers.push_back(range->numbers.of(k));
          }
          for (const model::ElementRun& run : model::whole_runs(parameter.part, piece.parameter_first, piece.count)) {
            for (std::int64_t i = 0; i < run.count; ++i)
              ASSERT_EQ(numbers.at(static_cast<std::size_t>(run.first - piece.parameter_first + i)), run.whole_first + i);
          }
          if (parameter.replica || (zero == 0 && rank >= tensor)) continue;
          for (const std::int64_t number : numbers) ++seen[keys.at(parameter.name)][number];
        }
        EXPECT_EQ(range, ranges.end());
      }
      for (const model::Parameter& p : whole) {
        EXPECT_EQ(std::ssize(seen[keys.at(p.name)]), p.stored_shape.elements()) << p.name;
        for (const auto& [number, times] : seen[keys.at(p.name)]) ASSERT_EQ(times, 1) << p.name << " " << number;
      }
    }
  }
  std::set<std::uint64_t> different;
  for (const auto& [name, key] : keys) different.insert(key);
  EXPECT_EQ(different.size(), whole.size());
}

// Parameters with other replicas are in other buckets, which those ranks cut among themselves.
TEST(FlatLayoutOfSeveralReplicaSets, EachBucketIsCutAmongTheReplicasOfItsParameters) {
  std::vector<model::Parameter> list = model::parameters(shape());
  const AxisSet wide{Axis::data, Axis::tensor};
  for (std::size_t n = 0; n < list.size(); n += 2) list[n].replicas = list[n].partial = wide;
  const Layout layout{{Axis::data, 2}, {Axis::tensor, 3}};
  std::map<std::size_t, std::set<std::int64_t>> begins;  // beginnings of shards, by bucket
  std::int64_t kept = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const FlatLayout flat(list, {.layout = layout, .rank = rank, .zero = 1, .bucket_bytes = 4096});
    std::int64_t state = 0;
    for (std::size_t b = 0; b < flat.buckets().size(); ++b) {
      const Bucket& bucket = flat.buckets()[b];
      EXPECT_EQ(bucket.shards, bucket.replicas == wide ? 6 : 2);
      EXPECT_EQ(bucket.range.count % (bucket.shards * FlatLayout::alignment), 0);
      EXPECT_EQ(flat.shard(bucket).count * bucket.shards, bucket.range.count);
      EXPECT_EQ(flat.state_first(bucket), state);
      state += flat.shard(bucket).count;
      begins[b].insert(flat.shard(bucket).first);
    }
    EXPECT_EQ(flat.state_elements(), state);
    for (std::size_t n = 0; n < list.size(); ++n)
      EXPECT_EQ(flat.buckets()[flat.bucket_of(n)].replicas, list[n].replicas) << list[n].name;
    for (const FlatLayout::StatePiece& piece : flat.state_pieces()) {
      const bool first = list[piece.parameter].replicas == wide || layout.coordinate(rank, Axis::tensor) == 0;
      if (first) kept += piece.count;
    }
  }
  const FlatLayout flat(list, {.layout = layout, .bucket_bytes = 4096});
  for (std::size_t b = 0; b < flat.buckets().size(); ++b) EXPECT_EQ(std::ssize(begins[b]), flat.buckets()[b].shards);
  std::int64_t all = 0;
  for (const model::Parameter& p : list) all += p.stored;
  EXPECT_EQ(kept, all);
}

INSTANTIATE_TEST_SUITE_P(Sizes, FlatLayoutTest,
                         testing::Combine(testing::Values(1, 2, 3, 8), testing::Values<std::int64_t>(1, 4096, 1 << 30)));

}  // namespace
}  // namespace plait::parallel
