// How the chain of segments is cut into stages.
#include "parallel/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "core/philox.h"

namespace plait::parallel {
namespace {

// Most loaded rank, squares over ranks, squares over stages: written down once more, as plainly as can be.
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

TEST(Stages, NoRunOfBoundariesIsBetterElsewhere) {
  const Random random(1, "stages");
  for (std::uint64_t round = 0; round < 60; ++round) {
    const int ranks = 2 + static_cast<int>(random.below(4, round, 0)), chunks = 1 + static_cast<int>(random.below(3, round, 1));
    const bool is_v = chunks == 2 && round % 2 == 0;
    const StageMap s(is_v ? StagePlacement::v : StagePlacement::loop, ranks, chunks);
    std::vector<double> costs;
    for (int segments = s.count() + static_cast<int>(random.below(20, round, 2)); segments > 0; --segments) {
      // A model's segments are equal but for its ends; some rounds are of any costs.
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
