// Rounds AdamW's moments to bf16 up or down at random, so that on average nothing is lost (stochastic rounding; Gupta, Agrawal,
// Gopalakrishnan and Narayanan 2015, "Deep learning with limited numerical precision"). Rounding to nearest loses any change
// that moves a number by less than half a step of bf16, 1/512 to 1/256 of it. An update moves the second moment by (1 - beta2)
// (g² - v), so with beta2 = 0.999 it would not move unless g² is a few times v.
//
// The random numbers are Philox's (core/philox.h) and have no state: the key is the parameter's; the counter is the update's
// number and the number of a group of four neighbouring elements in the whole parameter. Each element has one of the four
// words: its lower half is for the first moment, its upper half for the second. So every layout rounds an element by the same
// numbers, replicas stay equal, and a resumed run goes on as it would have. Private to ops; cuda/adamw.cu computes the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/dtype.h"
#include "core/philox.h"

namespace plait::ops {

// The words of elements 4 `quad` to 4 `quad` + 3 of the parameter `key`.
inline PhiloxBlock rounding_words(std::uint64_t key, std::int64_t update, std::int64_t quad) {
  const auto halves = [](std::uint64_t n) {
    return std::array{static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32)};
  };
  const auto element = halves(static_cast<std::uint64_t>(quad)), step = halves(static_cast<std::uint64_t>(update));
  return philox4x32({element[0], element[1], step[0], step[1]}, halves(key));
}

// `value`, rounded up in magnitude if the 16 bits that bf16 drops plus `random`, of 16 bits, reach 2^16. With uniform random
// numbers that happens exactly as often as the dropped part says. Finite values stay finite, infinities and NaN stay as they
// are.
inline BFloat16 rounded_by(float value, std::uint32_t random) {
  constexpr std::uint32_t infinity = 0x7f800000u, largest = 0x7f7fffffu;
  const auto all = std::bit_cast<std::uint32_t>(value), magnitude = all & 0x7fffffffu;
  if (magnitude >= infinity) return BFloat16(value);
  BFloat16 rounded;
  rounded.bits = static_cast<std::uint16_t>((std::min(magnitude + random, largest) | (all & 0x80000000u)) >> 16);
  return rounded;
}

}  // namespace plait::ops
