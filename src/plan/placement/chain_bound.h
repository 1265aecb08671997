// What the messages of a pipeline that are not placed yet will cost at least: for the branch and bound of exact.h.
//
// A pipeline rank with two neighbours sends to two different GPUs, so it costs its GPU's nearest and second nearest one, and
// every hop is counted at both of its ends: half of the sum over the ranks is a bound of the sum over the hops (the 2-neighbour
// bound of the travelling salesman). It sees that a bridge serves one hop only, which "every hop as the best one" does not.
//
// Where every GPU gets a rank, what remains of the pipelines also spans all GPUs without one and the open ends, so it costs no
// less than a spanning forest of them with as many trees as there are open pipelines (Held and Karp 1970 for one path). That
// sees that hosts, or islands of NVLinks, must be left at least once.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/placement/traffic.h"
#include "topology/fabric.h"

namespace plait::plan {

class ChainBound {
 public:
  // Of a fabric of at most 16 GPUs.
  ChainBound(topology::Fabric& fabric, const Traffic& traffic);

  bool sends() const { return sends_; }

  // Prepares for questions about one state. `free`: GPUs, as bits, without a rank; `ends`: those whose rank has a neighbour
  // without a GPU. `open_copies`: pipelines that have a rank without a GPU; 0 if not all GPUs will get a rank.
  void look_at(std::uint32_t free, std::uint32_t ends, int open_copies);

  // Seconds that one message of each kind takes at least, in one copy of the pipeline of which pipeline ranks from `placed` on
  // are without a GPU, without those both of whose ends are placed. gpu_of[p] of the others.
  double fill(int placed, const std::vector<int>& gpu_of) const;
  // The same summed over all copies.
  double fill_of_all() const { return forest_fill_; }
  // Seconds that the busiest pair will take at least when `ranks` more ranks are placed, of which `at_an_end` have one
  // neighbour only or none.
  double steady(int ranks, int at_an_end) const;

  int neighbours(int pipeline) const { return static_cast<int>(neighbours_[static_cast<std::size_t>(pipeline)].size()); }
  // Whether one of its neighbours is not below `placed`.
  bool open(int pipeline, int placed) const;

 private:
  struct Partner {
    int gpu;
    double seconds;
  };
  // Of the minimum spanning tree without its `trees - 1` longest edges: their sum, or the longest of them.
  double forest(const std::vector<double>& seconds, std::uint32_t nodes, int trees, bool longest);
  static double nearest(const std::vector<Partner>& partners, std::uint32_t among, int how_many, double* second);

  int gpus_;
  bool sends_ = false;
  std::vector<std::vector<int>> neighbours_;           // by pipeline rank
  std::vector<std::vector<Partner>> fill_;             // by GPU: the others by what a message there and back takes, ascending
  std::vector<std::vector<Partner>> steady_;           // by GPU: the same of all bytes, the slower direction
  std::vector<double> fill_between_, steady_between_;  // the same by pair
  bool connected_ = false;                             // each pipeline rank is a neighbour of the next one
  double forest_fill_ = 0, forest_steady_ = 0;
  std::vector<double> edges_, distance_;  // of the search for a spanning tree
  std::uint32_t free_ = 0;
  std::vector<double> one_sums_, two_sums_;  // of k GPUs without a rank with one, two neighbours: at least
  std::vector<double> second_steady_;        // of GPUs without a rank, ascending
};

}  // namespace plait::plan
