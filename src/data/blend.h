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
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace plait::data {

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
