// A lower bound on the cost of pipeline messages whose ends are not both placed, for the branch and bound of exact.h.
//
// A pipeline rank with two neighbours sends to two different GPUs, so it costs at least its GPU's nearest and second nearest.
// Every hop is counted at both of its ends, so half of the sum over the ranks bounds the sum over the hops (the 2-neighbour
// bound of the travelling salesman). It sees that a bridge serves one hop only; assuming the best way for every hop does not.
//
// Where every GPU gets a rank, the rest of the pipelines spans all free GPUs and the open ends. So it costs no less than a
// spanning forest of them with as many trees as there are open pipelines (Held and Karp 1970 for one path). This sees that
// hosts, or islands of NVLinks, must be left at least once.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/placement/traffic.h"
#include "topology/fabric.h"

namespace plait::plan {

class ChainBound {
 public:
  // For a fabric of at most 16 GPUs.
  ChainBound(topology::Fabric& fabric, const Traffic& traffic);

  bool sends() const { return sends_; }

  // Prepares for questions about one state of the search. `free`: GPUs without a rank, as bits; `ends`: GPUs whose rank has an
  // unplaced neighbour. `open_copies`: pipelines with unplaced ranks; 0 if not all GPUs will get a rank.
  void look_at(std::uint32_t free, std::uint32_t ends, int open_copies);

  // At least the seconds that one message of each kind takes in one copy of the pipeline, without messages whose ends are both
  // placed. Pipeline ranks from `placed` on have no GPU yet; the others are on gpu_of[p].
  double fill(int placed, const std::vector<int>& gpu_of) const;
  // The forest bound on the same, summed over all copies.
  double fill_of_all() const { return forest_fill_; }
  // At least the seconds of the busiest pair once `ranks` more ranks are placed, of which `at_an_end` have at most one
  // neighbour.
  double steady(int ranks, int at_an_end) const;

  int neighbours(int pipeline) const { return static_cast<int>(neighbours_[static_cast<std::size_t>(pipeline)].size()); }
  // True if one of its neighbours is unplaced: not below `placed`.
  bool open(int pipeline, int placed) const;

 private:
  struct Partner {
    int gpu;
    double seconds;
  };
  // The minimum spanning tree of `nodes` without its `trees - 1` longest edges: the sum of its edges, or the longest of them.
  double forest(const std::vector<double>& seconds, std::uint32_t nodes, int trees, bool longest);
  static double nearest(const std::vector<Partner>& partners, std::uint32_t among, int how_many, double* second);

  int gpus_;
  bool sends_ = false;
  std::vector<std::vector<int>> neighbours_;  // by pipeline rank
  std::vector<std::vector<Partner>> fill_;    // by GPU: the others by the seconds of a message there and back, ascending
  std::vector<std::vector<Partner>> steady_;  // by GPU: the same for all bytes, in the slower direction
  std::vector<double> fill_between_, steady_between_;  // the same by pair
  bool connected_ = false;                             // each pipeline rank is a neighbour of the next one
  double forest_fill_ = 0, forest_steady_ = 0;
  std::vector<double> edges_, distance_;  // scratch of forest()
  std::uint32_t free_ = 0;
  std::vector<double> one_sums_, two_sums_;  // at least, for k GPUs without a rank: with one neighbour each, with two
  std::vector<double> second_steady_;        // of the GPUs without a rank, ascending
};

}  // namespace plait::plan
