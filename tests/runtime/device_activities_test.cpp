// A GPU's activities and their times, by CUPTI.
#include "runtime/device_activities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

namespace plait::runtime {
namespace {

using Clock = std::chrono::steady_clock;

TEST(DeviceActivities, SayWhyThereAreNone) {
  const Device host{DeviceKind::host, 0};
  Stream stream(host);
  DeviceActivities activities(host, {stream});
  EXPECT_NE(activities.why_missing(), "");
  EXPECT_TRUE(activities.synchronize_take().empty());
}

class GpuDeviceActivities : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda_device_count(&why) == 0) GTEST_SKIP() << why;
    make_current(device_);
  }
  const Device device_{DeviceKind::cuda, 0};
};

TEST_F(GpuDeviceActivities, AreOnTheirStreamAndOnTheHostsClock) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  DeviceMemory memory(device_);
  const Buffer from = memory.allocate(bytes), to = memory.allocate(bytes);
  Stream first(device_), second(device_);
  for (int round = 0; round < 3; ++round) {
    const std::string label = "round " + std::to_string(round);
    DeviceActivities activities(device_, {first, second});
    ASSERT_EQ(activities.why_missing(), "");
    const auto before = Clock::now();
    first.ref().zero(from.data(), bytes);
    first.ref().synchronize();
    const auto between = Clock::now();
    second.ref().copy(to.data(), from.data(), bytes);
    second.ref().synchronize();
    const auto after = Clock::now();
    std::map<int, parallel::DeviceActivity> found;  // by stream
    for (const parallel::DeviceActivity& a : activities.synchronize_take()) {
      if (a.stream < 0) continue;
      EXPECT_TRUE(found.try_emplace(a.stream, a).second) << a.name;
    }
    ASSERT_EQ(found.size(), 2u) << label;
    EXPECT_EQ(found.at(0).name, "set " + std::to_string(bytes) + " bytes");
    EXPECT_EQ(found.at(1).name, "copy " + std::to_string(bytes) + " bytes");
    // 64 MiB take tens of microseconds; the clocks agree to less than that.
    constexpr auto tolerance = std::chrono::microseconds(50);
    EXPECT_GT(found.at(0).begin, before - tolerance);
    EXPECT_LT(found.at(0).end, between + tolerance);
    EXPECT_GT(found.at(1).begin, between - tolerance);
    EXPECT_LT(found.at(1).end, after + tolerance);
    EXPECT_LT(found.at(0).begin, found.at(0).end);
    EXPECT_TRUE(activities.synchronize_take().empty()) << "each is taken once";
  }
}

}  // namespace
}  // namespace plait::runtime
