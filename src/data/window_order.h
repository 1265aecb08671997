// The order in which the windows of a stream of tokens are read: epochs without replacement.
//
// Window w is the sequence_length + 1 tokens from w * sequence_length on: it shares its last token, which is only a target,
// with the next one, so that in an epoch every token but the first is predicted exactly once. The remaining (tokens - 1) %
// sequence_length tokens make no window. So that these are not always the same tokens, the windows of an epoch begin at an
// offset of 0 to that many tokens, drawn from the key and the epoch; the number of windows does not depend on it.
//
// Each epoch contains every window once, in its own order (Permutation). Without shuffling the windows come in their
// stored order, from offset 0. Position n of the order is a function of (seed, name, n): nothing is stored, and no layout and
// no resume changes it.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/philox.h"

namespace plait::data {

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
//
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

// Immutable and thread-safe.
class WindowOrder {
 public:
  // tokens: sequence_length + 1 or more.
  WindowOrder(std::uint64_t seed, std::string_view name, std::int64_t tokens, std::int64_t sequence_length, bool shuffle);

  std::int64_t windows() const { return static_cast<std::int64_t>(permutation_.size()); }  // per epoch
  // The first token of the window at position `position` (from 0; epochs follow each other).
  std::int64_t start(std::int64_t position) const;

 private:
  Permutation permutation_;
  Random offsets_;
  std::int64_t sequence_length_, left_over_;
  bool shuffle_;
};

}  // namespace plait::data
