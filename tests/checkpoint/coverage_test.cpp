#include "checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace plait::checkpoint {
namespace {

TEST(Coverage, JoinsNeighbours) {
  Coverage coverage;
  EXPECT_TRUE(coverage.add(10, 5));
  EXPECT_TRUE(coverage.add(0, 10));
  EXPECT_TRUE(coverage.add(20, 5));
  EXPECT_TRUE(coverage.add(15, 5));
  EXPECT_EQ(coverage.runs(), (std::map<std::int64_t, std::int64_t>{{0, 25}}));
  EXPECT_FALSE(coverage.missing(25).has_value());
}

TEST(Coverage, RefusesOverlaps) {
  Coverage coverage;
  ASSERT_TRUE(coverage.add(10, 10));
  EXPECT_FALSE(coverage.add(5, 6));    // its end
  EXPECT_FALSE(coverage.add(19, 6));   // its start
  EXPECT_FALSE(coverage.add(12, 3));   // inside
  EXPECT_FALSE(coverage.add(0, 100));  // around
  EXPECT_FALSE(coverage.add(10, 10));  // the same
  EXPECT_EQ(coverage.runs(), (std::map<std::int64_t, std::int64_t>{{10, 20}}));
}

TEST(Coverage, NamesTheFirstHole) {
  Coverage coverage;
  EXPECT_EQ(coverage.missing(3), (Coverage::Run{0, 3}));
  EXPECT_FALSE(coverage.missing(0).has_value());
  coverage.add(2, 2);
  EXPECT_EQ(coverage.missing(6), (Coverage::Run{0, 2}));
  coverage.add(0, 2);
  EXPECT_EQ(coverage.missing(6), (Coverage::Run{4, 6}));
}

TEST(Coverage, AgreesWithABitmap) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Coverage coverage;
    std::vector<bool> bitmap(64, false);
    for (int i = 0; i < 40; ++i) {
      const auto first = static_cast<std::ptrdiff_t>(random() % 60), count = static_cast<std::ptrdiff_t>(random() % 5);
      const auto begin = bitmap.begin() + first, end = begin + count;
      const bool free = std::none_of(begin, end, [](bool set) { return set; });
      ASSERT_EQ(coverage.add(first, count), free);
      if (free) std::fill(begin, end, true);
    }
    const auto hole = std::find(bitmap.begin(), bitmap.end(), false);
    ASSERT_EQ(coverage.missing(64).has_value(), hole != bitmap.end());
    if (hole != bitmap.end()) {
      EXPECT_EQ(coverage.missing(64)->first, hole - bitmap.begin());
    }
  }
}

}  // namespace
}  // namespace plait::checkpoint
