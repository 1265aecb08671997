#include "train/report/source_report.h"

#include <gtest/gtest.h>

namespace plait::train {
namespace {

TEST(SourceReport, SaysShareAndEpochsOfEachSource) {
  EXPECT_EQ(source_report({}, 10), "");
  EXPECT_EQ(source_report({{"a.txt", 1001, 100, 250}}, 10), "data a.txt: 2.50k tokens, 2.5 epochs of 1.00k");
  EXPECT_EQ(source_report({{"a.txt", 1001, 100, 250}, {std::string(70, 'b'), 50'000, 4999, 750}}, 10),
            "data a.txt: 2.50k tokens (25.00 %), 2.5 epochs of 1.00k\n"
            "data " +
                std::string(57, 'b') + "...: 7.50k tokens (75.00 %), 0.15 epochs of 50.0k");
  EXPECT_EQ(source_report({{"a.txt", 1001, 100, 0}}, 10), "data a.txt: 0 tokens, 0 epochs of 1.00k");
}

}  // namespace
}  // namespace plait::train
