// Which hops a collective's rings make, and in which order a ring visits its members.
#pragma once

#include <map>
#include <vector>

#include "topology/host_rings.h"

namespace plait::plan {

struct RingHop {
  int from = 0, to = 0;  // indices of members
  int rings = 1;         // how many of the rings make it
};

// Each ring takes an equal share of the bytes.
struct CollectiveHops {
  int rings = 1;
  std::vector<RingHop> hops;
};

// Up to `most_searched` members: of all cyclic orders one whose slowest hop is fastest, where hops that cross one channel share
// it equally; of those the one that comes first with members by host and GPU. More members: by host and GPU. Where several
// rings carry a group (topology/host_rings.h), that is the order of its members within each host.
class RingOrders {
 public:
  static constexpr std::size_t most_searched = 8;

  explicit RingOrders(const topology::Network& network) : network_(network) {}

  // Indices into `gpus`; between members on one GPU nothing is in the way. Begins with the first by host and GPU.
  std::vector<int> order(const std::vector<int>& gpus);
  // Of all rings.
  CollectiveHops hops(const std::vector<int>& gpus);

 private:
  class Search;

  std::vector<int> by_host(const std::vector<int>& gpus) const;

  const topology::Network& network_;
  // Groups that are connected alike have the same answer: by what the search sees of them.
  std::map<std::vector<double>, std::vector<int>> found_;
};

}  // namespace plait::plan
