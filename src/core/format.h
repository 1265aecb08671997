// Formats numbers for people: amounts of memory, counts, times.
#pragma once

#include <chrono>
#include <cmath>
#include <concepts>
#include <string>

namespace plait {

std::string format_gib(double bytes, int decimals = 1);        // "12.3 GiB"
std::string format_bytes(double bytes, int gib_decimals = 1);  // "987 bytes", "1.5 KiB", "512.0 MiB", "12.3 GiB"

std::string format_count(double value);  // "0.25", "987", "12.3k", "4.56M"

std::string format_duration(std::chrono::seconds duration);  // "0:07", "12:30", "3:05:00", "2d 03:05"

// "1 step", "2 steps", "2 batches".
template <std::integral T>
std::string plural(T count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

// A NaN without its sign, which means nothing but would be printed: "nan", not "-nan". Other values as they are.
template <std::floating_point T>
T unsigned_nan(T value) {
  return std::isnan(value) ? std::abs(value) : value;
}

}  // namespace plait
