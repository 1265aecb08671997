// The units of data sheets, measurements and configurations.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

namespace plait {

// Prefixes of bytes, FLOPs and seconds.
constexpr double tera = 1e12, giga = 1e9, micro = 1e-6;
constexpr double to_ms = 1e3;  // multiplies seconds
constexpr double kib = 1024, mib = 1024 * kib, gib = 1024 * mib;
constexpr double infinite = std::numeric_limits<double>::infinity();  // no bound yet

// Times of configurations and options are in seconds, those of timers in milliseconds.
inline std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

}  // namespace plait
