// Buffers and the counters of their allocator.
#include <cstdint>
#include <limits>
#include <utility>

#include <gmock/gmock.h>

#include "core/error.h"
#include "core/test_devices.h"

#if defined(__SANITIZE_ADDRESS__)
// The sanitizer's allocator ends the process on a size it cannot serve; the tests below ask for such a size on purpose.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
#elif defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
#endif

namespace plait {
namespace {

template <typename Where>
class BufferTest : public DeviceFixture<Where> {};
TYPED_TEST_SUITE_P(BufferTest);

TYPED_TEST_P(BufferTest, IsAlignedAndRoundedUp) {
  DeviceMemory memory(this->device_);
  for (const std::size_t bytes : {1u, 255u, 256u, 257u, 100000u}) {
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::pinned_host}) {
      const Buffer buffer = memory.allocate(bytes, kind);
      ASSERT_TRUE(buffer);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
      EXPECT_GE(buffer.bytes(), bytes);
      EXPECT_LT(buffer.bytes(), bytes + 256);
    }
  }
  EXPECT_EQ(memory.device(), this->device_);
}

TYPED_TEST_P(BufferTest, CountsCallsLiveAndPeakBytes) {
  DeviceMemory memory(this->device_);
  EXPECT_EQ(memory.allocations(), 0);
  EXPECT_EQ(memory.peak_bytes(), 0u);
  {
    const Buffer one = memory.allocate(1024);
    {
      const Buffer two = memory.allocate(4096);
      EXPECT_EQ(memory.live_bytes(), 5120u);
    }
    EXPECT_EQ(memory.live_bytes(), 1024u);
    const Buffer pinned = memory.allocate(1 << 20, MemoryKind::pinned_host);  // not the device's memory
    EXPECT_EQ(memory.live_bytes(), 1024u);
  }
  EXPECT_EQ(memory.allocations(), 3);
  EXPECT_EQ(memory.live_bytes(), 0u);
  EXPECT_EQ(memory.peak_bytes(), 5120u);
}

TYPED_TEST_P(BufferTest, MovingHandsOverTheMemory) {
  DeviceMemory memory(this->device_);
  Buffer first = memory.allocate(512);
  void* const data = first.data();
  Buffer second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(first.bytes(), 0u);
  EXPECT_EQ(second.data(), data);
  Buffer third = memory.allocate(256);
  third = std::move(second);  // frees what third held
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(memory.live_bytes(), 512u);
  Buffer& same = third;
  third = std::move(same);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(memory.live_bytes(), 512u);
  third = Buffer();
  EXPECT_EQ(memory.live_bytes(), 0u);
}

TYPED_TEST_P(BufferTest, TooMuchIsADeviceErrorAndCountsNothing) {
  DeviceMemory memory(this->device_);
  for (const std::size_t bytes : {std::size_t{1} << 60, std::numeric_limits<std::size_t>::max()}) {
    try {
      const Buffer buffer = memory.allocate(bytes);
      FAIL() << bytes << " bytes were allocated";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(to_string(this->device_) + ": out of memory: cannot allocate"));
    }
  }
  EXPECT_EQ(memory.allocations(), 0);
  EXPECT_EQ(memory.live_bytes(), 0u);
  EXPECT_TRUE(memory.allocate(256));  // the device still works
}

REGISTER_TYPED_TEST_SUITE_P(BufferTest, IsAlignedAndRoundedUp, CountsCallsLiveAndPeakBytes, MovingHandsOverTheMemory,
                            TooMuchIsADeviceErrorAndCountsNothing);
INSTANTIATE_TYPED_TEST_SUITE_P(Host, BufferTest, OnHost);
INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, BufferTest, OnCuda);

TEST(EmptyBufferTest, OwnsNothing) {
  const Buffer buffer;
  EXPECT_FALSE(buffer);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.bytes(), 0u);
}

}  // namespace
}  // namespace plait
