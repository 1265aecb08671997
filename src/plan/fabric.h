// The machine as transfers see it: for any two GPUs what a transfer between them crosses, and what of that it shares with others.
//
// GPUs have one number each, their place in comm::topology::gpus_of(). A channel is one direction of an edge of the graph: all
// transfers that cross it at one time share its bandwidth. Bandwidth in GB/s = 1e9 bytes per second, latency in microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/topology/routes.h"

namespace plait::plan {

struct Channel {
  double gb_per_s = 0;
};

struct Way {
  std::vector<int> channels;  // indices into Fabric::channels(), in the order of the path; none for a GPU to itself
  double gb_per_s = 0;        // of one transfer alone: the narrowest channel, or what was measured; 0: there is no way
  double latency_us = 0;
  std::string link;           // "NV18", "PIX", "SYS", "NET": comm/topology/routes.h
  comm::topology::Origin bandwidth_from = comm::topology::Origin::nominal;
};

class Fabric {
 public:
  explicit Fabric(comm::topology::Graph graph);

  int gpus() const { return static_cast<int>(routes_.gpus().size()); }
  const comm::topology::Graph& graph() const { return routes_.graph(); }
  const comm::topology::Node& gpu(int number) const;
  const std::vector<Channel>& channels() const { return channels_; }
  // "NUMA node 0 to NUMA node 1 of host 0, smp": for explanations.
  std::string channel_name(int channel) const;

  // Found when first asked for and kept, so not for several threads at once. The reference stays good.
  const Way& way(int from, int to);

 private:
  comm::topology::Routes routes_;
  std::vector<Channel> channels_;  // 2 × edge, and that + 1 for the edge reversed
  std::unordered_map<std::uint64_t, Way> ways_;
};

}  // namespace plait::plan
