// Routes: the way from one GPU to another through the graph, with the edges that a transfer crosses, their width and their
// names.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "topology/graph.h"

namespace plait::topology {

// One edge of a path, from its `a` to its `b` unless reversed. Two flows that cross the same edge in the same direction share
// it.
struct Hop {
  int edge = 0;
  bool reversed = false;
  friend bool operator==(const Hop&, const Hop&) = default;
};

// The figures of transfers through pinned host memory: measured between H200s (docs/p2p.md), whose PCIe is wider.
inline constexpr double host_memory_gb_per_s = 36, host_memory_latency_us = 15;

struct Path {
  std::vector<Hop> hops;  // empty: no way exists (or the two GPUs are one)
  double gb_per_s = 0;    // of the narrowest edge, for a single flow; through host memory at most host_memory_gb_per_s
  double latency_us = 0;  // sum over edges; through host memory at least host_memory_latency_us
  bool by_host_memory = false;
};

struct PairSummary {
  double gb_per_s = 0;  // 0: no way exists
  double latency_us = 0;
  Origin bandwidth_from = Origin::nominal;
  Origin latency_from = Origin::nominal;
  // "NV2", "XGMI1": lanes between the two; "NVS8": lanes of each to NVSwitches; "C2C"; "NET": over the network; "relay":
  // through the memory of a third GPU; "host": through that of the host. The PCIe paths have nvidia-smi's names: "PIX" one
  // switch, "PXB" more than one, "PHB" a host bridge (or a NUMA node whose bridges are not told apart), "NODE" bridges of one
  // NUMA node, "SYS" between NUMA nodes; "none".
  std::string link = "none";
};

// Finds the way of a transfer. The kind of link decides first: NVLink or xGMI, directly or by an NVSwitch, wherever it joins
// the two GPUs (as CUDA's peer access does, even if PCIe were wider), else the links of the host, else the network. Among paths
// of one kind the widest wins, then the one of least latency, then of fewest edges, then the one whose nodes come first; so the
// answer does not depend on the order of edges. Data does not pass through a third host, and through a third GPU only by a
// relay: two GPUs of one host without peer access, in either direction, use the memory of one that both have access to in both
// directions (comm.p2p: relay). It is the one with the widest way to both; of these the one that relays for the fewest other
// pairs of the host, counted in the order of gpus(); then the one of least latency, then the first. If none can relay, they use
// the memory of the host.
class Routes {
 public:
  // Keeps its own copy. Throws InternalError if the graph has problems.
  explicit Routes(Graph graph);

  const Graph& graph() const { return graph_; }
  const std::vector<int>& gpus() const { return gpus_; }  // gpus_of(graph)

  // The paths to every GPU in the order of gpus(); the one to itself has no hops. Time grows with the size of the graph times
  // the number of different widths: for all pairs of one host this is much cheaper than asking for each.
  std::vector<Path> paths_from(int gpu) const;
  // Both are nodes of GPUs. It searches their two hosts and the nodes outside any host, so its time does not grow with the
  // other hosts. The relays of a host are found when first asked for and kept, so not for concurrent threads.
  Path path(int from, int to) const;
  // Paths as if every two GPUs had peer access: the physical connection.
  std::vector<Path> direct_paths_from(int gpu) const;
  Path direct_path(int from, int to) const;
  // The path between two GPUs of one host through its memory, at the NUMA node of `from` if that is known; no hops if none is
  // reached.
  Path host_path(int from, int to) const;
  // The node of the GPU that relays between the two; -1: no relay.
  int relay_between(int from, int to) const;

  // The measured figures if there are any, else those of `path` (which must be from `from` to `to`).
  PairSummary summary(int from, int to, const Path& path) const;
  PairSummary summary(int from, int to) const { return summary(from, to, path(from, to)); }
  // The figures of `path`, from `from` on, ignoring measurements between its ends; and the measurement, or null.
  PairSummary summary_of(int from, const Path& path) const;
  const PairMeasurement* measurement(int from, int to) const;

 private:
  enum class Reach { nvlink, host_memory, host, network };
  struct Neighbour {
    int edge, to;
    int host;  // of `to`, counted from 1 in ascending order; 0: of no host
  };
  // The nodes that a search may touch, numbered from 0: all of them, or those of two hosts and of no host.
  struct Region {
    bool all = true;
    int host = 0, other = 0;  // as in Neighbour
    int size = 0;
  };
  Region all() const;
  Region around(int from, int to) const;
  int place_in(const Region& region, int node) const;
  bool leads_to(int node, int host) const;
  template <class Visit>
  void for_steps(const Region& region, int node, const Visit& visit) const;
  bool may_cross(const Neighbour& step, int from, int source, Reach reach) const;
  Path widest_path(int from, int to, Reach reach, const Region& region) const;  // no hops: no such path
  std::vector<double> widths_from(int source, Reach reach, const Region& region) const;
  // The edge that leads to each node of the region.
  std::vector<int> shortest_from(int source, Reach reach, double width, const Region& region) const;
  Path walk_back(int source, int target, const std::vector<int>& arrived_by, const Region& region) const;
  std::string link_name(int from, const Path& path) const;
  bool have_access(int from, int to) const;  // in both directions
  using Relays = std::map<std::pair<int, int>, int>;
  const Relays& relays_of(int host) const;  // numbered as in Node; for pairs of GPUs, the lower node first
  Relays find_relays(int host) const;
  Path relayed(int from, int by, int to) const;

  Graph graph_;
  std::vector<int> gpus_;
  std::vector<int> host_of_;                                   // by node, as in Neighbour
  std::vector<int> place_in_host_;                             // by node, among the nodes of its host
  std::vector<int> host_sizes_;                                // nodes of a host, as in Neighbour
  std::vector<bool> leaf_;                                     // by node: of no host, with at most one such neighbour
  std::vector<std::vector<Neighbour>> steps_;                  // by node, sorted by host and node that they lead to
  std::vector<std::pair<std::pair<int, int>, int>> measured_;  // (from, to) to index in graph_.pairs, sorted
  mutable std::map<int, Relays> relays_;                       // by host
};

struct LinkedPair {
  std::string link;      // "NV18"
  int from = 0, to = 1;  // indices into gpus_of()
};

// The first pair, by GPU number, for every kind of link between two GPUs; pairs without a way between them are left out.
std::vector<LinkedPair> a_pair_of_each_link(const Graph& graph);

}  // namespace plait::topology
