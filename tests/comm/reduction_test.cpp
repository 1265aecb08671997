// What reductions on a host make of two elements.
#include "comm/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace plait::comm::test {
namespace {

constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max(), least = std::numeric_limits<std::int32_t>::min();

TEST(Reduced, IntegersWrapAround) {
  EXPECT_EQ(reduced(Reduction::sum, most, 1), least);
  EXPECT_EQ(reduced(Reduction::sum, least, -1), most);
  EXPECT_EQ(reduced(Reduction::max, most, least), most);
}

TEST(Reduced, TheLargestIsANumberIfThereIsOne) {
  const double none = std::nan("");
  EXPECT_EQ(reduced(Reduction::max, none, -2.0), -2);
  EXPECT_EQ(reduced(Reduction::max, -2.0, none), -2);
  EXPECT_TRUE(std::isnan(reduced(Reduction::max, none, none)));
  EXPECT_TRUE(std::isnan(reduced(Reduction::sum, none, 1.0)));
  EXPECT_EQ(reduced(Reduction::max, -1.0F, -3.0F), -1);
}

TEST(ReduceElements, RoundsSumsOfTwoInBf16AndLeavesNoNumberOut) {
  const BFloat16 a[] = {BFloat16(256.0F), BFloat16(std::nanf("")), BFloat16(3.0F)},
                 b[] = {BFloat16(1.0F), BFloat16(-5.0F), BFloat16(std::nanf(""))};
  BFloat16 out[3];
  reduce_elements(DType::bf16, Reduction::sum, out, a, b, 1);
  EXPECT_EQ(static_cast<float>(out[0]), 256) << "257 lies in the middle, and rounds to even";
  reduce_elements(DType::bf16, Reduction::max, out, a, b, 3);
  EXPECT_EQ(static_cast<float>(out[0]), 256);
  EXPECT_EQ(static_cast<float>(out[1]), -5);
  EXPECT_EQ(static_cast<float>(out[2]), 3);
}

}  // namespace
}  // namespace plait::comm::test
