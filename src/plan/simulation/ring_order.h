// The hops of a collective's rings, and the order in which a ring visits its members.
#pragma once

#include <map>
#include <vector>

#include "topology/host_rings.h"

namespace plait::plan {

struct RingHop {
  int from = 0, to = 0;  // indices of members
  int rings = 1;         // how many of the rings use it
};

// Each ring takes an equal share of the bytes.
struct CollectiveHops {
  int rings = 1;
  std::vector<RingHop> hops;
};

// Up to `most_searched` members: the cyclic order whose slowest hop is fastest, where hops that cross one channel share it
// equally; of equally fast orders, the first with members by host and GPU. More members: by host and GPU. Where a group uses
// several rings (topology/host_rings.h), this orders its members within each host.
class RingOrders {
 public:
  static constexpr std::size_t most_searched = 8;

  explicit RingOrders(const topology::Network& network) : network_(network) {}

  // Indices into `gpus`; members on one GPU reach each other without limit. Begins with the first by host and GPU.
  std::vector<int> order(const std::vector<int>& gpus);
  // The hops of all rings.
  CollectiveHops hops(const std::vector<int>& gpus);

 private:
  class Search;

  std::vector<int> by_host(const std::vector<int>& gpus) const;

  const topology::Network& network_;
  // Answers by the search's view of a group: groups that are connected alike share one.
  std::map<std::vector<double>, std::vector<int>> found_;
};

}  // namespace plait::plan
