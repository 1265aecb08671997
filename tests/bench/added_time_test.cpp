#include "bench/added_time.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace plait::bench {
namespace {

TEST(AddedTime, IsWhatWasTimedWhereNothingSlowsAnythingDown) {
  const AddedTime added = added_time({.blocks = 2, .block = 6, .head = 18}, {.blocks = 10, .block = 6, .head = 18});
  EXPECT_DOUBLE_EQ(added.of_block, 1);
  EXPECT_DOUBLE_EQ(added.of_head, 1);
}

// As on an H200: among two blocks a head of 18 ms slows everything down by 6 %, among ten by 2 %.
TEST(AddedTime, CountsWhatAHeadSlowsBlocksDownByAsTheHeads) {
  const MixTimes few{.blocks = 2, .block = 6.1, .head = 19.1}, many{.blocks = 10, .block = 5.87, .head = 18.4};
  const AddedTime added = added_time(few, many);
  EXPECT_LT(added.of_block, 1);
  EXPECT_GT(added.of_head, 1);
  for (const MixTimes& mix : {few, many}) {
    EXPECT_NEAR(static_cast<double>(mix.blocks) * many.block * added.of_block + many.head * added.of_head, mix.micro_batch(),
                1e-9);
  }
}

TEST(AddedTime, TakesNoiseForNoMoreThanAQuarter) {
  const AddedTime added = added_time({.blocks = 2, .block = 60, .head = 100}, {.blocks = 3, .block = 6, .head = 18});
  EXPECT_DOUBLE_EQ(added.of_block, 0.8);
  EXPECT_DOUBLE_EQ(added.of_head, 1.25);
  EXPECT_THROW(added_time({.blocks = 2, .block = 1, .head = 1}, {.blocks = 2, .block = 1, .head = 1}), InternalError);
}

}  // namespace
}  // namespace plait::bench
