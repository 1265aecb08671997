// How AdamW's moments are rounded to bf16: up or down at random, so that on average nothing is lost (stochastic rounding;
// Gupta, Agrawal, Gopalakrishnan and Narayanan 2015, "Deep learning with limited numerical precision"). Rounding to nearest
// loses what moves a number by less than half a step of bf16, 1/512 to 1/256 of it: an update moves the second moment by (1 -
// beta2) (g² - v), so with beta2 = 0.999 it would stay where it is unless g² is several times v.
//
// The random numbers are Philox's (core/philox.h) and have no state: key is the parameter's, the counter the update's number
// and that of four neighbouring elements of the whole parameter. Each element has a word of the four: its lower half is for the
// first moment, its upper one for the second. So every layout rounds an element by the same numbers, replicas stay equal, and a
// run that is resumed goes on as it would have. Private to ops; cuda/adamw.cu computes the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/dtype.h"
#include "core/philox.h"

namespace plait::ops {

// Of elements 4 `quad` to 4 `quad` + 3 of the parameter `key`.
inline PhiloxBlock rounding_words(std::uint64_t key, std::int64_t update, std::int64_t quad) {
  const auto halves = [](std::uint64_t n) {
    return std::array{static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32)};
  };
  const auto element = halves(static_cast<std::uint64_t>(quad)), step = halves(static_cast<std::uint64_t>(update));
  return philox4x32({element[0], element[1], step[0], step[1]}, halves(key));
}

// `value`, rounded up in magnitude if the 16 bits that bf16 leaves out and `random`, of 16 bits, come to 2^16 and more: for
// random numbers that are uniform exactly as often as the left out part says. What is finite stays finite, infinities and NaN
// stay what they are.
inline BFloat16 rounded_by(float value, std::uint32_t random) {
  constexpr std::uint32_t infinity = 0x7f800000u, largest = 0x7f7fffffu;
  const auto all = std::bit_cast<std::uint32_t>(value), magnitude = all & 0x7fffffffu;
  if (magnitude >= infinity) return BFloat16(value);
  BFloat16 rounded;
  rounded.bits = static_cast<std::uint16_t>((std::min(magnitude + random, largest) | (all & 0x80000000u)) >> 16);
  return rounded;
}

}  // namespace plait::ops
