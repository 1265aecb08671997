#include "parallel/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/philox.h"

namespace plait::parallel {
namespace {

bool overlap(const MemoryItem& a, const MemoryItem& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

TEST(MemoryPlan, NothingAliveAtTheSameTimeShares) {
  const Random random(1, "memory plan");
  for (std::uint64_t round = 0; round < 50; ++round) {
    std::vector<MemoryItem> items;
    for (std::uint64_t i = 0; i < 60; ++i) {
      MemoryItem item{"item " + std::to_string(i), "test", 1 + random.below(5000, i, 10 * round), {}};
      int at = static_cast<int>(random.below(30, i, 10 * round + 1));
      for (std::uint64_t n = random.below(4, i, 10 * round + 2); n > 0; --n) {
        const int last = at + static_cast<int>(random.below(10, i, 10 * round + 3 + n));
        item.lifetimes.push_back({at, last});
        at = last + 2;
      }
      items.push_back(item);
    }
    const MemoryPlan plan(items);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < plan.items().size(); ++i) {
      const MemoryItem& a = plan.items()[i];
      sum += a.bytes + MemoryPlan::alignment;
      EXPECT_EQ(a.offset % MemoryPlan::alignment, 0u);
      EXPECT_LE(a.offset + a.bytes, plan.total_bytes());
      for (std::size_t j = 0; j < i; ++j) {
        const MemoryItem& b = plan.items()[j];
        ASSERT_FALSE(live_together(a, b) && overlap(a, b)) << a.name << " and " << b.name;
      }
    }
    EXPECT_LT(plan.total_bytes(), sum);
  }
}

// The plan's algorithm without the parts that make it quick.
std::vector<std::size_t> first_fit(const std::vector<MemoryItem>& items) {
  std::vector<std::size_t> order(items.size()), offsets(items.size()), placed;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return items[a].bytes > items[b].bytes; });
  for (const std::size_t item : order) {
    const auto end_of = [&](std::size_t other) { return offsets[other] + MemoryPlan::aligned(items[other].bytes); };
    for (bool moved = true; moved;) {
      moved = false;
      for (const std::size_t other : placed) {
        if (!live_together(items[item], items[other]) || offsets[other] >= end_of(item) || end_of(other) <= offsets[item])
          continue;
        offsets[item] = end_of(other);
        moved = true;
      }
    }
    placed.push_back(item);
  }
  return offsets;
}

TEST(MemoryPlan, PutsEachItemAtTheLowestFreeOffset) {
  const Random random(3, "first fit");
  for (std::uint64_t round = 0; round < 40; ++round) {
    std::uint64_t drawn = 0;
    const auto below = [&](std::uint64_t n) { return static_cast<int>(random.below(n, drawn++, round)); };
    // There are few lists for many items, as with segments and slots, and steps both shorter and longer than the number of
    // slices.
    std::vector<std::vector<Lifetime>> lists(static_cast<std::size_t>(1 + below(8)));
    const std::uint64_t step = round % 2 == 0 ? 40 : 900;
    for (std::vector<Lifetime>& list : lists) {
      int at = below(step);
      for (int n = below(5); n > 0; --n) {
        const int last = at + below(1 + step / 8);
        list.push_back({at, last});
        at = last + 1 + below(4);
      }
    }
    std::vector<MemoryItem> items;
    for (std::uint64_t i = 0; i < 60; ++i) {
      const int bytes = below(3) > 0 ? 256 * (1 + below(5)) : 1 + below(5000);
      items.push_back({"item " + std::to_string(i), "test", static_cast<std::size_t>(bytes),
                       lists[static_cast<std::size_t>(below(lists.size()))]});
    }
    const std::vector<std::size_t> expected = first_fit(items);
    const MemoryPlan plan(items);
    for (std::size_t i = 0; i < items.size(); ++i) ASSERT_EQ(plan.items()[i].offset, expected[i]) << "item " << i;
  }
}

TEST(MemoryPlan, SharesMemoryOfDisjointLifetimes) {
  const MemoryPlan plan(
      {{"a", "t", 1024, {{0, 3}}}, {"b", "t", 1024, {{4, 6}}}, {"c", "t", 512, {{2, 5}}}, {"d", "t", 256, {}}});
  EXPECT_EQ(plan.items()[0].offset, plan.items()[1].offset);
  EXPECT_EQ(plan.total_bytes(), 1024u + 512u + 256u);
}

TEST(MemoryPlan, LifetimesAreInclusive) {
  EXPECT_TRUE(live_together({"a", "t", 1, {{0, 3}}}, {"b", "t", 1, {{3, 6}}}));
  EXPECT_FALSE(live_together({"a", "t", 1, {{0, 3}, {8, 9}}}, {"b", "t", 1, {{4, 7}, {10, 11}}}));
  EXPECT_TRUE(live_together({"a", "t", 1, {}}, {"b", "t", 1, {{4, 7}}}));
}

}  // namespace
}  // namespace plait::parallel
