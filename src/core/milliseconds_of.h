// Converts times of configurations and options, which are in seconds, to milliseconds for timers.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

namespace plait {

inline std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

}  // namespace plait
