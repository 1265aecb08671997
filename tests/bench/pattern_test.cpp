// The checker of messages: whatever is wrong with one, it is seen.
#include <gtest/gtest.h>

#include "bench/pattern.h"

namespace plait::bench::test {
namespace {

std::vector<std::byte> content(const Pattern& pattern, std::uint64_t first, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  pattern.write(data, first);
  return data;
}

TEST(BenchPattern, FindsEverySingleWrongByte) {
  const Pattern pattern = Pattern::random(7);
  const std::uint64_t first = pattern.period() - 100;  // around the end of the period
  std::vector<std::byte> data = content(pattern, first, 500);
  EXPECT_FALSE(pattern.find_wrong(data, first));
  for (std::size_t at = 0; at < data.size(); ++at) {
    const std::byte right = data[at];
    data[at] ^= std::byte{1};
    const auto wrong = pattern.find_wrong(data, first);
    ASSERT_TRUE(wrong) << at;
    EXPECT_EQ(wrong->at, at);
    EXPECT_EQ(wrong->is, data[at]);
    EXPECT_EQ(wrong->expected, right);
    data[at] = right;
  }
}

TEST(BenchPattern, FindsWhatIsStaleShiftedOrTorn) {
  const Pattern pattern = Pattern::random(7);
  const std::size_t bytes = 100'000;
  std::vector<std::byte> data = content(pattern, 5000, bytes);
  EXPECT_TRUE(pattern.find_wrong(data, 5001));                                      // shifted
  EXPECT_TRUE(pattern.find_wrong(data, 5000 + 256));                                // the message before
  EXPECT_TRUE(pattern.find_wrong(data, 5000 + (std::uint64_t{64} << 20)));          // some slots on
  std::copy_n(content(pattern, 5000 + 4096, 64).begin(), 64, data.begin() + 8192);  // torn
  const auto wrong = pattern.find_wrong(data, 5000);
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->at, 8192u);
}

TEST(BenchPattern, CountsWrongElements) {
  const Pattern pattern = Pattern::random(3);
  std::vector<std::byte> data = content(pattern, 40, 4000);
  EXPECT_EQ(pattern.count_wrong(data, 40, 4), 0);
  for (const std::size_t at : {0u, 1u, 8u, 15u, 3999u}) data[at] ^= std::byte{1};  // elements 0, 2, 3 and the last
  EXPECT_EQ(pattern.count_wrong(data, 40, 4), 4);
  EXPECT_EQ(pattern.count_wrong(data, 41, 4), 1000);
}

TEST(BenchPattern, GoesToADeviceAndBackInPieces) {
  const Device device{};
  DeviceMemory memory(device);
  PatternTraffic traffic(memory);
  const Pattern pattern = Pattern::random(3);
  const std::size_t bytes = (std::size_t{20} << 20) + 12;  // more than is staged at once
  const Buffer buffer = memory.allocate(bytes);
  const View data(buffer.data(), DType::f32, {static_cast<std::int64_t>(bytes / 4)});
  const Stream stream(device);
  traffic.synchronize_fill(stream, pattern, data, 99);
  EXPECT_FALSE(traffic.synchronize_find_wrong(stream, pattern, data, 99));
  EXPECT_EQ(traffic.synchronize_count_wrong(stream, pattern, data, 99), 0);
  for (const std::size_t at : {bytes - 1, std::size_t{9} << 20}) {
    static_cast<std::byte*>(buffer.data())[at] ^= std::byte{1};
    const auto wrong = traffic.synchronize_find_wrong(stream, pattern, data, 99);
    ASSERT_TRUE(wrong);
    EXPECT_EQ(wrong->at, at);
  }
  EXPECT_EQ(traffic.synchronize_count_wrong(stream, pattern, data, 99), 2);
}

}  // namespace
}  // namespace plait::bench::test
