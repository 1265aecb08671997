// The order in which the windows of a stream of tokens are read: epochs without replacement.
//
// Window w is the sequence_length + 1 tokens from w * sequence_length on: it shares its last token, which is only a target,
// with the next one, so that in an epoch every token but the first is predicted exactly once. The remaining (tokens - 1) %
// sequence_length tokens make no window. So that these are not always the same tokens, the windows of an epoch begin at an
// offset of 0 to that many tokens, drawn from the key and the epoch; the number of windows does not depend on it.
//
// Each epoch contains every window once, in its own order (data/permutation.h). Without shuffling the windows come in their
// stored order, from offset 0. Position n of the order is a function of (seed, name, n): nothing is stored, and no layout and
// no resume changes it.
#pragma once

#include <cstdint>
#include <string_view>

#include "data/permutation.h"

namespace plait::data {

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
