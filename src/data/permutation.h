// Keyed permutations: an order of 0 .. size - 1 that is computed element by element, never stored.
//
// The permutation is a Feistel network over a * b >= size elements that adds modulo a and modulo b in turn, and repeats until
// the result is inside (J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002: the generalized-Feistel
// cipher, and cycle walking). a is the root of size, rounded up to an even number: with odd ones every round would be an even
// permutation, and so would the result. b is as small as possible, so that a * b < size + a and it hardly ever repeats. The
// rounds' functions are values of Philox (core/philox.h), distinguished by the key (seed, name) and the epoch.
//
// It is not a cipher to keep secrets with. It has 24 rounds because with 16, orders of half a dozen elements are not equally
// frequent.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/philox.h"

namespace plait::data {

// Immutable and thread-safe.
class Permutation {
 public:
  static constexpr std::uint64_t largest = std::uint64_t{1} << 63;

  // size: 1 to largest.
  Permutation(std::uint64_t seed, std::string_view name, std::uint64_t size);

  std::uint64_t size() const { return size_; }
  // Element `index` of the order of `epoch`: for each epoch a bijection of [0, size). Epochs below 2^60. About half a
  // microsecond.
  std::uint64_t at(std::uint64_t epoch, std::uint64_t index) const;

 private:
  std::uint64_t once(std::uint64_t epoch, std::uint64_t element) const;  // a bijection of [0, a * b)

  Random random_;
  std::uint64_t size_, a_, b_;
};

}  // namespace plait::data
