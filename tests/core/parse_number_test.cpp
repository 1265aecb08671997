#include "core/parse_number.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(Percentage, ReadsWhatUsersWrite) {
  EXPECT_EQ(percentage("5%"), 0.05);
  EXPECT_EQ(percentage("0.5%"), 0.005);
  EXPECT_EQ(percentage("0%"), 0.0);
  EXPECT_EQ(percentage("100%"), 1.0);
}

TEST(Percentage, TakesNothingElse) {
  for (const char* text :
       {"", "%", "5", "0.05", "5 %", " 5%", "5%%", "-1%", "101%", "nan%", "inf%", "1e1%", "five%", "5%x", "+5%"}) {
    EXPECT_EQ(percentage(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace plait
