#include "core/format.h"

#include <gtest/gtest.h>

#include "core/units.h"

namespace plait {
namespace {

TEST(FormatBytes, TakesTheLargestUnitThatIsNotTooLarge) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(0.25 * mib), "256.0 KiB");
  EXPECT_EQ(format_bytes(mib), "1.0 MiB");
  EXPECT_EQ(format_bytes(512 * mib), "512.0 MiB");
  EXPECT_EQ(format_bytes(1023.5 * mib), "1023.5 MiB");
  EXPECT_EQ(format_bytes(gib), "1.0 GiB");
  EXPECT_EQ(format_bytes(13'314 * mib), "13.0 GiB");
  EXPECT_EQ(format_bytes(5000 * gib), "5000.0 GiB");
  EXPECT_EQ(format_bytes(12.34 * gib, 2), "12.34 GiB");
  EXPECT_EQ(format_bytes(512 * mib, 2), "512.0 MiB");
}

TEST(FormatBytes, GibWithAsManyDecimalsAsAskedFor) {
  EXPECT_EQ(format_gib(512 * mib), "0.5 GiB");
  EXPECT_EQ(format_gib(12.34 * gib, 2), "12.34 GiB");
  EXPECT_EQ(format_gib(251.6 * gib, 0), "252 GiB");
  EXPECT_EQ(format_gib(-0.5 * gib), "-0.5 GiB");
}

}  // namespace
}  // namespace plait
