// Removes the sign of NaNs for printing.
#pragma once

#include <cmath>
#include <concepts>

namespace plait {

// A NaN without its sign, which means nothing but would be printed: "nan", not "-nan". Other values as they are.
template <std::floating_point T>
T unsigned_nan(T value) {
  return std::isnan(value) ? std::abs(value) : value;
}

}  // namespace plait
