// Of repeated measurements.
#pragma once

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace plait {

// The mean of the two in the middle where their number is even.
inline double median(std::vector<double> values) {
  require(!values.empty(), "median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// 10^9 bytes per second.
inline double gb_per_s(double bytes, double microseconds) { return microseconds > 0 ? bytes / microseconds / 1e3 : 0; }

}  // namespace plait
