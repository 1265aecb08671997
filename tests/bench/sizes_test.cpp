#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/p2p_benchmark.h"
#include "bench/sizes.h"
#include "core/error.h"

namespace plait::bench::test {
namespace {

using testing::ElementsAre;

TEST(BenchSizes, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("512", "--min"), 512u);
  EXPECT_EQ(parse_bytes("512B", "--min"), 512u);
  for (const char* text : {"4K", "4k", "4KB", "4 KB", "4KiB", "4096"}) EXPECT_EQ(parse_bytes(text, "--min"), 4096u) << text;
  EXPECT_EQ(parse_bytes("16M", "--min"), std::size_t{16} << 20);
  EXPECT_EQ(parse_bytes("1GB", "--min"), std::size_t{1} << 30);
  for (const char* text : {"", "0", "-1", "4X", "M", "1.5M", "4KK", "9999999G", "99999999999999999999"}) {
    EXPECT_THROW(parse_bytes(text, "--min"), ConfigError) << text;
  }
}

TEST(BenchSizes, ArePrintedExactly) {
  EXPECT_EQ(format_size(1), "1 B");
  EXPECT_EQ(format_size(1000), "1000 B");
  EXPECT_EQ(format_size(1024), "1 KB");
  EXPECT_EQ(format_size(1025), "1025 B");
  EXPECT_EQ(format_size(std::size_t{256} << 20), "256 MB");
  EXPECT_EQ(format_size(std::size_t{1} << 30), "1 GB");
}

TEST(BenchSizes, FormALadder) {
  EXPECT_THAT(message_sizes({.min = "1K", .max = "64K"}, true), ElementsAre(1024, 4096, 16384, 65536));
  EXPECT_THAT(message_sizes({.min = "1K", .max = "5K"}, true), ElementsAre(1024, 4096));
  EXPECT_THAT(message_sizes({.sizes = {"1M", "4K", "1024K"}}, true), ElementsAre(4096, 1 << 20));
  EXPECT_EQ(message_sizes({}, true).size(), 11u);
  EXPECT_EQ(message_sizes({}, true).back(), std::size_t{1} << 30);
  EXPECT_EQ(message_sizes({}, false).back(), std::size_t{16} << 20);
  EXPECT_THROW(message_sizes({.min = "2K", .max = "1K"}, true), ConfigError);
  EXPECT_THROW(message_sizes({.min = "2K", .sizes = {"4K"}}, true), ConfigError);
}

TEST(BenchSizes, AreBoundedAndSoIsTheNumberOfMessages) {
  std::vector<std::size_t> sizes{1, 2, 3, 4};
  EXPECT_EQ(bound_sizes(sizes, 2), 2u);
  EXPECT_THAT(sizes, ElementsAre(1, 2));
  EXPECT_EQ(messages_for(1024, 1 << 20), 64);
  EXPECT_EQ(messages_for(1 << 16, 1 << 20), 16);
  EXPECT_EQ(messages_for(1 << 20, 1 << 20), 4);
}

TEST(BenchSizes, PairsAreReadOrRefused) {
  EXPECT_THAT(parse_pairs({"0-1", "3-0"}), ElementsAre(std::pair(0, 1), std::pair(3, 0)));
  for (const char* text : {"", "0", "0-", "-1", "1-1", "0-1-2", "a-b", "0--1"})
    EXPECT_THROW(parse_pairs({text}), ConfigError) << text;
}

}  // namespace
}  // namespace plait::bench::test
