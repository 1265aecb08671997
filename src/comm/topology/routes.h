// The way from one GPU to another through the graph: which edges a transfer crosses, how wide they are, and what they are called.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/topology/graph.h"

namespace plait::comm::topology {

// One edge of a path, from its `a` to its `b` unless reversed. Two flows that cross the same edge in the same direction share it.
struct Hop {
  int edge = 0;
  bool reversed = false;
  friend bool operator==(const Hop&, const Hop&) = default;
};

struct Path {
  std::vector<Hop> hops;  // empty: there is no way (or the two GPUs are one)
  double gb_per_s = 0;    // of the narrowest edge, for one flow alone
  double latency_us = 0;  // of all edges
};

struct PairSummary {
  double gb_per_s = 0;    // 0: there is no way
  double latency_us = 0;
  Origin bandwidth_from = Origin::nominal;
  Origin latency_from = Origin::nominal;
  // "NV2", "XGMI1": lanes between the two; "NVS8": lanes of each to NVSwitches; "C2C"; "NET": over the network; the PCIe paths as
  // nvidia-smi calls them: "PIX" one switch, "PXB" several, "PHB" a host bridge (or a NUMA node whose bridges are not told
  // apart), "NODE" several bridges of a NUMA node, "SYS" between NUMA nodes; "none".
  std::string link = "none";
};

// Of all paths the widest, of these the one of least latency, then of fewest edges, then the one whose nodes come first: so the
// answer does not depend on the order of edges. Data does not pass through a third GPU nor a third host, and takes the network
// only where there is no other way.
class Routes {
 public:
  // Keeps its own copy. Throws InternalError if the graph has problems.
  explicit Routes(Graph graph);

  const Graph& graph() const { return graph_; }
  const std::vector<int>& gpus() const { return gpus_; }  // gpus_of(graph)

  // To every GPU in the order of gpus(); the one to itself has no hops. Time grows with the size of the graph times the number of
  // different widths: asking this once per GPU is much cheaper than asking for pairs.
  std::vector<Path> paths_from(int gpu) const;
  Path path(int from, int to) const;  // both are nodes of GPUs

  // What a measurement says if there is one, else what `path` (which must be from `from` to `to`) says.
  PairSummary summary(int from, int to, const Path& path) const;
  PairSummary summary(int from, int to) const { return summary(from, to, path(from, to)); }

 private:
  struct Step {
    int edge, to;
  };
  bool may_cross(const Step& step, int from, int source, bool network) const;
  std::vector<double> widths_from(int source, bool network) const;
  std::vector<int> shortest_from(int source, bool network, double width) const;  // for each node the edge that leads to it
  Path walk_back(int source, int target, const std::vector<int>& arrived_by) const;
  std::string link_name(int from, const Path& path) const;

  Graph graph_;
  std::vector<int> gpus_;
  std::vector<std::vector<Step>> steps_;                   // by node, by what they lead to
  std::vector<std::pair<std::pair<int, int>, int>> measured_;  // (from, to) to index in graph_.pairs, sorted
};

}  // namespace plait::comm::topology
