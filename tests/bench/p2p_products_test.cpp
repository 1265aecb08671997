// How many messages run beside products.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/p2p_products.h"
#include "core/error.h"

namespace plait::bench::test {
namespace {

using testing::ElementsAre;

TEST(BenchMessageLoad, IsNineTenthsOfTheSlowestThatCompares) {
  EXPECT_THAT(message_loads({1000, 800, 900}, 2), ElementsAre(720, 720, 720));
  EXPECT_THAT(message_loads({1000, 450, 900}, 2), ElementsAre(405, 405, 405));
}

TEST(BenchMessageLoad, WhatCannotCompareGetsItsOwn) {
  EXPECT_THAT(message_loads({1000, 100, 900}, 2), ElementsAre(810, 90, 810));
  // Where the library is the slowest, all compare.
  EXPECT_THAT(message_loads({1000, 100, 90}, 2), ElementsAre(81, 81, 81));
  // Without it the one that carries most is the measure.
  EXPECT_THAT(message_loads({100, 1000, 600}, std::nullopt), ElementsAre(90, 540, 540));
}

TEST(BenchMessageLoad, IsAtLeastTwo) {
  EXPECT_THAT(message_loads({0, 0}, 1), ElementsAre(2, 2));
  EXPECT_THAT(message_loads({1000, 1, 900}, 2), ElementsAre(810, 2, 810));
  EXPECT_THROW(message_loads({}, std::nullopt), InternalError);
  EXPECT_THROW(message_loads({1}, 1), InternalError);
}

TEST(BenchMessageLoad, SpreadsMessagesOverProducts) {
  const auto products = [](int messages, int count) {
    std::vector<int> all;
    for (int i = 0; i < messages; ++i) all.push_back(product_of(i, messages, count));
    return all;
  };
  EXPECT_THAT(products(6, 3), ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(products(2, 4), ElementsAre(0, 2));
  EXPECT_THAT(products(5, 3), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_EQ(product_of(3'999'999, 4'000'000, 1000), 999);  // more than 2^31 in between
}

}  // namespace
}  // namespace plait::bench::test
