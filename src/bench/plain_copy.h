// A copy from GPU to GPU as it is where nobody has enabled peer access: through the host's memory, by the driver.
#pragma once

#include <optional>

#include "core/device.h"

namespace plait::bench {

struct PlainCopy {
  std::size_t bytes = 0;
  double microseconds = 0;  // median
  double gb_per_s = 0;
};

// To be called before anything in this process has enabled peer access between the two, which no one can see afterwards; a
// library may do so too (NCCL does). Leaves `from` current.
PlainCopy synchronize_plain_copy(Device from, Device to, std::size_t bytes);

}  // namespace plait::bench
