// The cut of the chain of segments into stages.
#include "parallel/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "core/philox.h"

namespace plait::parallel {
namespace {

// Most loaded rank, squares over ranks, squares over stages: written once more, as plainly as possible.
std::tuple<double, double, double> measure(const std::vector<double>& costs, const StageMap& s,
                                           const std::vector<SegmentRange>& split) {
  std::vector<double> ranks(static_cast<std::size_t>(s.ranks()), 0.0);
  double stage_squares = 0, rank_squares = 0;
  for (int stage = 0; stage < s.count(); ++stage) {
    const SegmentRange& segments = split[static_cast<std::size_t>(stage)];
    double cost = 0;
    for (int segment = segments.first; segment < segments.end; ++segment) cost += costs[static_cast<std::size_t>(segment)];
    ranks[static_cast<std::size_t>(s.rank_of(stage))] += cost;
    stage_squares += cost * cost;
  }
  for (const double cost : ranks) rank_squares += cost * cost;
  return {*std::max_element(ranks.begin(), ranks.end()), rank_squares, stage_squares};
}

// A window costs the keys it leaves: w - w * w / 2 n of n keys, instead of n / 2 on average.
TEST(Stages, LayersWithAWindowCostLess) {
  model::ModelShape shape;
  shape.layers = 3, shape.hidden = 16, shape.heads = shape.kv_heads = 2, shape.head_dim = 8, shape.ffn = 32;
  shape.vocab = shape.padded_vocab = 128;
  const std::vector<double> all = segment_costs(shape, 64);
  shape.window = 16, shape.window_layers = {1};
  const std::vector<double> some = segment_costs(shape, 64);
  for (std::size_t segment = 0; segment < all.size(); ++segment) {
    const double hidden = segment == 3 ? 12.0 * 16 * (32 - (16 - 2.0)) : 0;
    EXPECT_DOUBLE_EQ(some[segment], all[segment] - hidden) << segment;
  }
}

TEST(Stages, NoRunOfBoundariesIsBetterElsewhere) {
  const Random random(1, "stages");
  for (std::uint64_t round = 0; round < 60; ++round) {
    const int ranks = 2 + static_cast<int>(random.below(4, round, 0)), chunks = 1 + static_cast<int>(random.below(3, round, 1));
    const bool is_v = chunks == 2 && round % 2 == 0;
    const StageMap s(is_v ? StagePlacement::v : StagePlacement::loop, ranks, chunks);
    std::vector<double> costs;
    for (int segments = s.count() + static_cast<int>(random.below(20, round, 2)); segments > 0; --segments) {
      // A model's segments are equal except for its ends; some rounds have random costs.
      costs.push_back(round % 3 == 0 ? 0.5 + random.uniform(1000 * round + static_cast<std::uint64_t>(segments)) : 12);
    }
    costs.front() = 1, costs.back() = 30;
    const std::vector<SegmentRange> split = split_stages(costs, s);
    ASSERT_EQ(split.size(), static_cast<std::size_t>(s.count()));
    EXPECT_EQ(split.back().end, static_cast<int>(costs.size()));
    for (std::size_t i = 0; i < split.size(); ++i) {
      EXPECT_LT(split[i].first, split[i].end);
      EXPECT_EQ(split[i].first, i > 0 ? split[i - 1].end : 0);
    }
    for (std::size_t from = 0; from + 1 < split.size(); ++from) {
      for (std::size_t to = from; to + 1 < split.size(); ++to) {
        for (const int step : {-1, 1}) {
          std::vector<SegmentRange> moved = split;
          for (std::size_t i = from; i <= to; ++i) moved[i].end += step, moved[i + 1].first += step;
          const bool valid = std::all_of(moved.begin(), moved.end(), [](const SegmentRange& b) { return b.first < b.end; });
          EXPECT_FALSE(valid && measure(costs, s, moved) < measure(costs, s, split))
              << "round " << round << ", " << from << " to " << to;
        }
      }
    }
  }
}

// Calls act(split) for every way of cutting `segments` into `stages`.
template <typename Act>
void for_each_split(int segments, int stages, std::vector<SegmentRange>& split, Act act) {
  const int first = split.empty() ? 0 : split.back().end, left = stages - static_cast<int>(split.size());
  if (left == 0) return act(split);
  for (int end = left == 1 ? segments : first + 1; end <= segments - (left - 1); ++end) {
    split.push_back({first, end});
    for_each_split(segments, stages, split, act);
    split.pop_back();
  }
}

// Blocks have two halves that cost 3 and 5, with an embedding and a head of any size, as in models.
TEST(Stages, WithSeveralOfARankAreHardlyWorseThanTheBest) {
  const Random random(2, "stages");
  int worse = 0;
  for (std::uint64_t round = 0; round < 40; ++round) {
    const int blocks = 3 + static_cast<int>(random.below(4, round, 0));
    const StageMap s(round % 2 == 0 ? StagePlacement::v : StagePlacement::loop, 2, 2);
    std::vector<double> costs{0.2};
    for (int block = 0; block < blocks; ++block) costs.insert(costs.end(), {3, 5});
    costs.push_back(2 + 24 * random.uniform(round));
    double best = 1e9;
    std::vector<SegmentRange> split;
    for_each_split(static_cast<int>(costs.size()), s.count(), split,
                   [&](const std::vector<SegmentRange>& all) { best = std::min(best, std::get<0>(measure(costs, s, all))); });
    const double found = std::get<0>(measure(costs, s, split_stages(costs, s)));
    EXPECT_LT(found, 1.05 * best) << "round " << round;
    if (found > 1.005 * best) ++worse;
  }
  EXPECT_LE(worse, 2);
}

// gpt-2.8b's width and a vocabulary of 50,304: the rank with the head gives away an attention for half of a block at its front.
TEST(Stages, ARankGivesABlockForAHalf) {
  const std::vector<double> costs{1, 3, 5, 3, 5, 3, 5, 3, 5, 3, 5, 12.2};
  const StageMap s(StagePlacement::v, 2, 2);
  EXPECT_NEAR(std::get<0>(measure(costs, s, split_stages(costs, s))), 27, 1e-9);
}

// 256 stages of 4096 layers are split in the time of a given number of measurements of one split, so the limit holds on any
// machine and build.
TEST(Stages, ManyAreSplitWithoutMeasuringEveryTry) {
  const StageMap s(StagePlacement::loop, 64, 4);
  std::vector<double> costs(8194);
  for (std::size_t segment = 0; segment < costs.size(); ++segment) costs[segment] = segment % 2 == 0 ? 3 : 5;
  costs.front() = 1, costs.back() = 30;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const std::vector<SegmentRange> split = split_stages(costs, s);
  const Clock::time_point done = Clock::now();
  double sum = 0;
  constexpr int measured = 500;
  for (int n = 0; n < measured; ++n) sum += std::get<0>(measure(costs, s, split));
  EXPECT_GT(sum, 0);
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  EXPECT_LT(seconds(done - start), 80'000 * seconds(Clock::now() - done) / measured);
}

TEST(Stages, ASplitThatWasMadeBeforeIsTheSame) {
  StageSplits splits;
  const std::vector<double> costs = {1, 12, 12, 12, 12, 12, 30}, others = {1, 12, 12, 12, 12, 12, 3};
  for (int n = 0; n < 2; ++n) {
    for (const std::vector<double>& c : {costs, others}) {
      for (const StagePlacement placement : {StagePlacement::loop, StagePlacement::v}) {
        const StageMap s(placement, 2, 2);
        EXPECT_EQ(splits.split(c, s), split_stages(c, s));
      }
    }
  }
}

}  // namespace
}  // namespace plait::parallel
