// A fabric is the machine as transfers see it: for any two GPUs the channels that a transfer between them crosses, which it
// shares with others.
//
// GPUs have one number each, their place in topology::gpus_of(). A channel is one direction of an edge of the graph: all
// transfers that cross it at one time share its bandwidth. Bandwidth in GB/s = 1e9 bytes per second, latency in microseconds.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "topology/routes.h"

namespace plait::topology {

struct Channel {
  double gb_per_s = 0;
};

struct Way {
  std::vector<int> channels;  // indices into Fabric::channels(), in the order of the path; none for a GPU to itself
  double gb_per_s = 0;        // for one transfer alone: the narrowest channel, or the measured figure; 0: there is no way
  double latency_us = 0;
  std::string link;  // "NV18", "PIX", "SYS", "NET": topology/routes.h
  Origin bandwidth_from = Origin::nominal;
  // The channels, belonging to NICs, by which it leaves the one GPU's host and enters the other's. -1: both are on one host.
  int exit_channel = -1, entry_channel = -1;
};

class Fabric {
 public:
  explicit Fabric(Graph graph);

  int gpus() const { return static_cast<int>(routes_.gpus().size()); }
  const Graph& graph() const { return routes_.graph(); }
  const Node& gpu(int number) const;
  const std::vector<Channel>& channels() const { return channels_; }
  // "NUMA node 0 to NUMA node 1 of host 0, smp": for explanations.
  std::string channel_name(int channel) const;

  // Computed when first asked for and kept, so not for concurrent threads. The reference stays valid. Equal hosts share their
  // paths: the first query for such a pair costs a search of two hosts, all later ones a copy.
  const Way& way(int from, int to) { return way(from, to, /*of_message=*/false); }
  // The way of a message from rank to rank: through host memory where the job's messages go through it (Graph::host_pairs).
  const Way& message_way(int from, int to) { return way(from, to, !graph().host_pairs.empty()); }

  // Hosts that have GPUs, in the order of their GPUs, which are consecutive numbers.
  int hosts() const { return static_cast<int>(first_gpu_.size()) - 1; }
  int host_of(int gpu) const { return hosts_[static_cast<std::size_t>(gpu)]; }
  int host_of_node(int node) const {
    return host_of_node_[static_cast<std::size_t>(node)];
  }  // in the graph's numbering; -1: on none of them
  int first_gpu(int host) const {
    return first_gpu_[static_cast<std::size_t>(host)];
  }  // first_gpu(host + 1) is this host's end
  // Equal for two hosts that have the same nodes and edges inside and are attached to the same nodes outside (switches of a
  // network) by the same edges, each in the order of the graph. Counted from 0; measurements between pairs are ignored.
  int shape_of(int host) const { return shapes_[static_cast<std::size_t>(host)]; }
  int shapes() const { return shape_count_; }

 private:
  // An edge as the k-th of its host, so that it can be found in an equal host; or, if it belongs to no host, by its index.
  struct GraphEdge {
    int of = 0;  // 0: the way's first host; 1: its last one; 2: neither
    int edge = 0;
    bool reversed = false;
  };
  struct Pattern {
    std::vector<GraphEdge> edges;
    int exit = -1, entry = -1;  // indices of the edges that leave the first host and enter the last; -1: the way stays in one
    PairSummary summary;
  };
  // Shapes of the two hosts, 1 if they are one host, the index of each GPU among its host's nodes, and 1 if the way goes
  // through host memory.
  using PatternKey = std::array<int, 6>;
  struct PatternHash {
    std::size_t operator()(const PatternKey& key) const;
  };
  void sort_into_hosts();
  const Way& way(int from, int to, bool of_message);
  bool is_by_host(int from_gpu, int to_gpu, bool of_message) const;
  Pattern find_pattern(int from_gpu, int to_gpu, bool by_host) const;

  Routes routes_;
  std::vector<Channel> channels_;  // 2 × edge, and that + 1 for the edge reversed
  std::vector<int> hosts_;         // by GPU
  std::vector<int> host_of_node_;  // by node of the graph
  std::vector<int> first_gpu_;     // by host, and the number of GPUs
  std::vector<int> shapes_;        // by host
  int shape_count_ = 0;
  std::vector<int> place_in_host_;                  // by GPU, among the nodes of its host
  std::vector<std::vector<int>> edges_of_host_;     // indices of edges, ascending
  std::vector<std::pair<int, int>> place_of_edge_;  // by edge: host (-1: none that has GPUs) and index among its edges
  std::unordered_map<PatternKey, Pattern, PatternHash> patterns_;
  std::unordered_map<std::uint64_t, Way> ways_, message_ways_;
};

// The simulator's view of a machine: where transfers cross the same channel. It comes from a Fabric, or from anything else that
// knows.
struct Network {
  // A channel is at least as wide as the ways across it: measurements override nominal figures.
  std::vector<Channel> channels;
  std::vector<int> host_of;                                 // by GPU
  std::function<const Way&(int from, int to)> way;          // by GPUs; the reference is valid until the next call
  std::function<const Way&(int from, int to)> message_way;  // for messages, if their way differs; else like `way`

  int gpus() const { return static_cast<int>(host_of.size()); }
};

// `fabric` has to outlive it.
Network network_of(Fabric& fabric);

}  // namespace plait::topology
