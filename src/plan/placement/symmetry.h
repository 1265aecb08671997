// Which GPUs of a machine are alike: so that a search tries one of them for all.
//
// Two GPUs are alike, given some that stay where they are, if a permutation of the GPUs takes one to the other, leaves those in
// place, and takes every way to one with the same bandwidth and latency, and channels to channels of the same bandwidth, so
// that what shared a channel still does. Candidates come from colour refinement (Weisfeiler and Leman 1968, on pairs' ways);
// the permutation is then built one GPU after the other and each step verified, so nothing is taken for alike that is not. A
// search for one that takes too many steps is given up: then they count as different, which costs time and no correctness.
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
  // InternalError for more than most_symmetric_gpus GPUs. Keeps nothing of `fabric` but what it tells here.
  explicit Symmetry(topology::Fabric& fabric);

  // By GPU, the lowest one that it is alike to while those of `fixed` (as bits) stay in place; those of `fixed` are alike to
  // themselves only.
  using Alike = std::array<std::int8_t, most_symmetric_gpus>;
  const Alike& alike(std::uint32_t fixed);

  // A permutation as described that takes `from` to `to`: by GPU, where it goes.
  std::optional<std::vector<int>> permutation(std::uint32_t fixed, int from, int to) const;

 private:
  struct Pair {
    int kind = 0;               // equal: the same bandwidth, latency and number of channels
    std::vector<int> channels;  // counted anew, from 0
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
