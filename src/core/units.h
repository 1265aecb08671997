// The units of data sheets and measurements, in bytes, FLOPs and seconds.
#pragma once

#include <limits>

namespace plait {

constexpr double tera = 1e12, giga = 1e9, micro = 1e-6;
constexpr double to_ms = 1e3;  // multiplies seconds
constexpr double kib = 1024, mib = 1024 * kib, gib = 1024 * mib;
constexpr double infinite = std::numeric_limits<double>::infinity();  // no bound yet

}  // namespace plait
