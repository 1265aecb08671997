// Which sample comes next: the order of the windows of a stream of tokens, and the source of each sample of a blend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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
//
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

// A blend mixes sources in given shares: it says which source each sample comes from.
//
// The sources are the leaves of a balanced binary tree. Of the samples that reach a node, the first n contain n times the share
// of its left half, rounded, that go there: each node spreads its samples as evenly as a line is drawn in pixels (J. E.
// Bresenham, "Algorithm for computer control of a digital plotter", IBM Systems Journal 4(1), 1965). So in any n consecutive
// samples, a source's count differs from its share of n by at most 1 for each level of the tree; and the number of samples a
// source had before a sample, which is that sample's number within the source, follows from the sample's number alone, in as
// many steps as the tree has levels.
//
// (Megatron-LM's BlendedDataset gives each sample to the source that is most behind. That is as even, but has to be replayed
// from the first sample on.)
//
// Immutable and thread-safe.
class Blend {
 public:
  // One or more weights, above 0; they need not sum to 1. Shares are kept to 2^-40.
  explicit Blend(std::span<const double> weights);

  struct Place {
    std::size_t source = 0;
    std::int64_t number = 0;  // of the sample within its source, from 0
  };
  Place at(std::int64_t sample) const;

  // Samples of each source among the first `samples`. Below 2^62.
  std::vector<std::int64_t> taken(std::int64_t samples) const;

 private:
  std::int64_t to_left(std::int64_t samples, std::size_t first, std::size_t middle, std::size_t end) const;

  std::vector<std::uint64_t> before_;  // sum of the weights before each source, and of all
};

}  // namespace plait::data
