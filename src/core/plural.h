// Formats counts with their nouns.
#pragma once

#include <concepts>
#include <string>

namespace plait {

// "1 step", "2 steps", "2 batches".
template <std::integral T>
std::string plural(T count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

}  // namespace plait
