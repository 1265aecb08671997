// In which order a collective's ring visits its members.
#pragma once

#include <map>
#include <vector>

#include "plan/simulation/network.h"

namespace plait::plan {

// Up to `most_searched` members: of all cyclic orders one whose slowest hop is fastest, where hops that cross one channel share
// it equally; of those the one that comes first with members by host and GPU. More members: by host and GPU.
//
// One ring stands for a collective. A library that runs several at once, with a NIC each, is faster for groups that have several
// members on each of several hosts.
class RingOrders {
 public:
  static constexpr std::size_t most_searched = 8;

  explicit RingOrders(const Network& network) : network_(network) {}

  // Indices into `gpus`; between members on one GPU nothing is in the way. Begins with the first by host and GPU.
  std::vector<int> order(const std::vector<int>& gpus);

 private:
  class Search;

  const Network& network_;
  // Groups that are connected alike have the same answer: by what the search sees of them.
  std::map<std::vector<double>, std::vector<int>> found_;
};

}  // namespace plait::plan
