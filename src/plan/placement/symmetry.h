// GPUs that are alike in a machine, so that a search tries only one of them.
//
// Two GPUs are alike, for a given set of fixed GPUs, if some permutation of the GPUs takes one to the other, leaves the fixed
// ones in place, and takes every way to one with the same bandwidth and latency, and channels to channels of the same
// bandwidth, so that ways still share the same channels. Candidates come from colour refinement (Weisfeiler and Leman 1968, on
// pairs' ways). The permutation is then built one GPU after the other and each step verified, so different GPUs never count as
// alike. A search that takes too many steps is given up: its GPUs then count as different, which costs time but stays correct.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "topology/fabric.h"

namespace plait::plan {

inline constexpr int most_symmetric_gpus = 16;

class Symmetry {
 public:
  // InternalError for more than most_symmetric_gpus GPUs. Keeps no reference to `fabric`.
  explicit Symmetry(topology::Fabric& fabric);

  // By GPU, the lowest one that it is alike to while the GPUs in `fixed` (as bits) stay in place; a fixed GPU is alike only to
  // itself.
  using Alike = std::array<std::int8_t, most_symmetric_gpus>;
  const Alike& alike(std::uint32_t fixed);

  // A permutation as described that takes `from` to `to`; by GPU, its image.
  std::optional<std::vector<int>> permutation(std::uint32_t fixed, int from, int to) const;

 private:
  struct Pair {
    int kind = 0;               // equal for the same bandwidth, latency and number of channels
    std::vector<int> channels;  // renumbered from 0
  };
  struct Mapping;
  const Pair& pair(int from, int to) const { return pairs_[static_cast<std::size_t>(from * gpus_ + to)]; }
  void refine();
  bool extend(Mapping& mapping, int next) const;
  bool place(Mapping& mapping, int gpu, int image) const;

  int gpus_;
  std::vector<Pair> pairs_;
  std::vector<double> channel_gb_per_s_;
  std::vector<int> colours_;
  std::unordered_map<std::uint32_t, Alike> known_;
};

}  // namespace plait::plan
