#include "data/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "core/error.h"

namespace plait::data {
namespace {

using Order = std::vector<std::uint64_t>;

Order order_of(const Permutation& permutation, std::uint64_t epoch) {
  Order order(permutation.size());
  for (std::uint64_t i = 0; i < order.size(); ++i) order[i] = permutation.at(epoch, i);
  return order;
}

// Pearson's statistic in standard deviations from its mean.
double excess(const std::vector<double>& counts, double expected) {
  double statistic = 0;
  for (const double count : counts) statistic += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

TEST(Permutation, HasEveryElementOnce) {
  std::vector<std::uint64_t> sizes(40);
  std::iota(sizes.begin(), sizes.end(), std::uint64_t{1});
  for (const std::uint64_t power : {128, 256, 1024}) {
    for (const std::uint64_t size : {power - 1, power, power + 1}) sizes.push_back(size);
  }
  for (const std::uint64_t size : sizes) {
    const Permutation permutation(7, "a", size);
    for (const std::uint64_t epoch : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 59}) {
      Order order = order_of(permutation, epoch);
      std::ranges::sort(order);
      for (std::uint64_t i = 0; i < size; ++i) ASSERT_EQ(order[i], i) << "size " << size << ", epoch " << epoch;
    }
  }
}

TEST(Permutation, OfTheLargestSizesStaysInside) {
  for (const std::uint64_t size :
       {Permutation::largest, Permutation::largest - 1, (std::uint64_t{1} << 62) + 1, std::uint64_t{3037000500} * 3037000499}) {
    const Permutation permutation(7, "a", size);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 100; ++i) {
      for (const std::uint64_t index : {i, size - 1 - i, size / 2 + i}) {
        const std::uint64_t element = permutation.at(3, index);
        EXPECT_LT(element, size);
        seen.insert(element);
      }
    }
    EXPECT_EQ(seen.size(), 300u);
    EXPECT_GT(*seen.rbegin() - *seen.begin(), size - size / 10) << "spread over all of it";
  }
  EXPECT_THROW(Permutation(7, "a", 0), InternalError);
  EXPECT_THROW(Permutation(7, "a", Permutation::largest + 1), InternalError);
  EXPECT_THROW(Permutation(7, "a", 5).at(0, 5), InternalError);
}

TEST(Permutation, DependsOnSeedNameAndEpoch) {
  const Order order = order_of(Permutation(7, "a", 1000), 4);
  EXPECT_EQ(order, order_of(Permutation(7, "a", 1000), 4));
  EXPECT_NE(order, order_of(Permutation(8, "a", 1000), 4));
  EXPECT_NE(order, order_of(Permutation(7, "b", 1000), 4));
  EXPECT_NE(order, order_of(Permutation(7, "a", 1000), 5));
}

bool is_even(Order order) {
  bool even = true;
  for (std::uint64_t i = 0; i < order.size(); ++i) {
    for (; order[i] != i; even = !even) std::swap(order[i], order[order[i]]);
  }
  return even;
}

// Rounds that are all even permutations would make more even orders than odd ones, most of all of 7.
TEST(Permutation, OrdersAreEvenAndOddAlike) {
  for (const std::uint64_t size : {7, 9, 16, 23}) {
    const Permutation permutation(13, "a", size);
    std::vector<double> counts(2);
    for (std::uint64_t epoch = 0; epoch < 500; ++epoch) ++counts[is_even(order_of(permutation, epoch)) ? 1 : 0];
    EXPECT_LT(std::abs(counts[0] - counts[1]), 4 * std::sqrt(500)) << "of " << size;
  }
}

// All orders of a few elements come equally often.
TEST(Permutation, OrdersOfFewElementsAreUniform) {
  for (const std::uint64_t size : {2, 3, 4, 5}) {
    const Permutation permutation(11, "a", size);
    std::map<Order, double> counts;
    double orders = 1;
    for (std::uint64_t n = 2; n <= size; ++n) orders *= static_cast<double>(n);
    const auto epochs = static_cast<std::uint64_t>(orders) * 40;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) ++counts[order_of(permutation, epoch)];
    std::vector<double> all;
    for (const auto& [order, count] : counts) all.push_back(count);
    EXPECT_EQ(static_cast<double>(all.size()), orders) << "of " << size;
    EXPECT_LT(std::abs(excess(all, 40)), 4.5) << "of " << size;
  }
}

// Where an element is in one epoch says nothing of where it is in the next, nor of its neighbour's place.
TEST(Permutation, PlacesAreUniformAndIndependent) {
  constexpr std::uint64_t size = 1009, epochs = 16, cells = 16;
  const Permutation permutation(5, "a", size);
  const auto cell = [](std::uint64_t place) { return place * cells / size; };
  std::vector<double> next_epoch(cells * cells), neighbour(cells * cells), drift(cells * cells), first(size);
  Order before = order_of(permutation, 0);
  for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
    const Order order = order_of(permutation, epoch);
    for (std::uint64_t i = 0; i < size; ++i) {
      ++next_epoch[cell(before[i]) * cells + cell(order[i])];
      ++neighbour[cell(order[i]) * cells + cell(order[(i + 1) % size])];
      ++drift[cell(i) * cells + cell(order[i])];
    }
    before = order;
  }
  // Of tables with fixed sums of rows and columns: (cells - 1)^2 degrees of freedom, so a little less than these counts have.
  const double expected = static_cast<double>(size * epochs) / (cells * cells);
  for (const auto* table : {&next_epoch, &neighbour, &drift}) EXPECT_LT(std::abs(excess(*table, expected)), 5.5);
  for (std::uint64_t epoch = 0; epoch < 10 * size; ++epoch) ++first[permutation.at(epoch, 0)];
  EXPECT_LT(std::abs(excess(first, 10)), 4.5) << "what an epoch begins with";
}

TEST(WindowOrder, ReadsEveryWindowOnceInAnEpoch) {
  for (const std::int64_t tokens : {6, 10, 11, 12, 15, 16, 17, 101}) {
    const WindowOrder order(3, "a", tokens, 5, true);
    EXPECT_EQ(order.windows(), (tokens - 1) / 5);
    std::set<std::int64_t> offsets;
    for (std::int64_t epoch = 0; epoch < 30; ++epoch) {
      std::set<std::int64_t> starts;
      for (std::int64_t i = 0; i < order.windows(); ++i) starts.insert(order.start(epoch * order.windows() + i));
      ASSERT_EQ(std::ssize(starts), order.windows());
      EXPECT_GE(*starts.begin(), 0);
      EXPECT_LE(*starts.rbegin() + 6, tokens);
      EXPECT_EQ(*starts.rbegin() - *starts.begin(), 5 * (order.windows() - 1)) << "side by side";
      offsets.insert(*starts.begin());
    }
    EXPECT_EQ(std::ssize(offsets), (tokens - 1) % 5 + 1) << "what is left over is read in other epochs";
  }
}

TEST(WindowOrder, NotShuffledReadsThemAsTheyLie) {
  const WindowOrder order(3, "a", 18, 5, false);
  std::vector<std::int64_t> starts;
  for (std::int64_t position = 0; position < 7; ++position) starts.push_back(order.start(position));
  EXPECT_THAT(starts, testing::ElementsAre(0, 5, 10, 0, 5, 10, 0));
}

}  // namespace
}  // namespace plait::data
