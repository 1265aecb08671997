// Typed fixtures that run one test body on the host device and, in suites whose name starts with Gpu, on a CUDA device.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/device.h"

namespace plait {

struct OnHost {
  static Device device() { return {DeviceKind::host, 0}; }
};

struct OnCuda {
  static Device device() { return {DeviceKind::cuda, 0}; }
};

template <typename Where>
class DeviceFixture : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (device_.is_cuda() && cuda_device_count(&why) == 0) GTEST_SKIP() << why;
    make_current(device_);
  }
  Device device_ = Where::device();
};

}  // namespace plait
