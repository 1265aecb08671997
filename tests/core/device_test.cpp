// Names, counts and refusals of devices.
#include "core/device.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "core/stream.h"
#include "core/test_devices.h"

namespace plait {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(DeviceTest, HasANameAndAnOrder) {
  EXPECT_EQ(to_string(Device{DeviceKind::cuda, 3}), "cuda:3");
  EXPECT_EQ(to_string(Device{}), "host:0");
  EXPECT_LT((Device{DeviceKind::host, 9}), (Device{DeviceKind::cuda, 0}));
  EXPECT_NE((Device{DeviceKind::cuda, 0}), (Device{DeviceKind::cuda, 1}));
  EXPECT_FALSE(Device{}.is_cuda());
}

TEST(DeviceTest, SaysWhyThereIsNoGpu) {
  std::string why;
  if (cuda_device_count(&why) > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(why, AnyOf(HasSubstr("built without CUDA"), HasSubstr("no usable NVIDIA driver"), HasSubstr("lists no GPU")));
  EXPECT_EQ(cuda_device_count(), 0);
}

TEST(DeviceTest, WithoutAGpuEveryCudaRequestIsADeviceError) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const Device gpu{DeviceKind::cuda, 0};
  DeviceMemory memory(gpu);
  EXPECT_THROW(make_current(gpu), DeviceError);
  EXPECT_THROW(Stream{gpu}, DeviceError);
  EXPECT_THROW(Event{gpu}, DeviceError);
  EXPECT_THROW(memory.allocate(256), DeviceError);
  EXPECT_THROW(memory_info(gpu), DeviceError);
  EXPECT_THROW(memory_size(gpu), DeviceError);
  EXPECT_THROW(device_name(gpu), DeviceError);
}

template <typename Where>
class AnyDeviceTest : public DeviceFixture<Where> {};
TYPED_TEST_SUITE_P(AnyDeviceTest);

TYPED_TEST_P(AnyDeviceTest, TellsItsNameAndMemory) {
  EXPECT_FALSE(device_name(this->device_).empty());
  const MemoryInfo info = memory_info(this->device_);
  EXPECT_GT(info.free_bytes, 0u);
  EXPECT_GE(info.total_bytes, info.free_bytes);
  EXPECT_GT(info.total_bytes, std::size_t{64} << 20);
  EXPECT_NEAR(static_cast<double>(memory_size(this->device_)), static_cast<double>(info.total_bytes),
              0.01 * static_cast<double>(info.total_bytes));
}

REGISTER_TYPED_TEST_SUITE_P(AnyDeviceTest, TellsItsNameAndMemory);
INSTANTIATE_TYPED_TEST_SUITE_P(Host, AnyDeviceTest, OnHost);
INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, AnyDeviceTest, OnCuda);

TEST(GpuDeviceTest, AnOrdinalThatDoesNotExistIsADeviceError) {
  std::string why;
  const int count = cuda_device_count(&why);
  if (count == 0) GTEST_SKIP() << why;
  try {
    make_current(Device{DeviceKind::cuda, count});
    FAIL() << "cuda:" << count << " does not exist";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cudaErrorInvalidDevice"), HasSubstr("core/cuda_device.cpp")));
  }
}

}  // namespace
}  // namespace plait
