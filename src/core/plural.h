// Counts with their nouns.
#pragma once

#include <concepts>
#include <string>

namespace plait {

// "1 step", "2 steps".
template <std::integral T>
std::string plural(T count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace plait
