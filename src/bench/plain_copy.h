// A copy from GPU to GPU without peer access: the driver moves it through host memory.
#pragma once

#include <optional>

#include "core/device.h"

namespace plait::bench {

struct PlainCopy {
  std::size_t bytes = 0;
  double microseconds = 0;  // median
  double gb_per_s = 0;
};

// Call it before anything in this process has enabled peer access between the two, since that cannot be detected afterwards.
// Libraries enable it too (NCCL does). Leaves `from` current.
PlainCopy synchronize_plain_copy(Device from, Device to, std::size_t bytes);

}  // namespace plait::bench
