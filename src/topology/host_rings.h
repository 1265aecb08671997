// How many rings carry a collective over several hosts, and by which NICs each of them goes from host to host.
//
// NCCL runs several rings, its channels, and looks for ones that leave and enter every host by another NIC
// (src/graph/search.cc, rings.cc). So does this, from the routes alone: between two hosts that follow each other it pairs
// members whose ways leave by different NICs and enter by different ones, those with the shortest way (on one rail) first;
// where several are as short, or leave by one NIC, the lowest. There are as many rings as the two hosts with the fewest such
// pairs have. Bandwidth has no say in it, so that more of it never makes a collective slower.
//
// Each ring takes an equal share of the bytes and visits all members. Within a host all rings go round in one cyclic order and
// leave it open after the member by which they leave: from that one to the next go all but that ring. So where all members have
// NICs of their own, each sends and receives what it does in one ring. (Which ring enters by which member makes no difference
// to that, and is not followed from host to host.)
#pragma once

#include <vector>

#include "topology/network.h"

namespace plait::topology {

struct HostHop {
  int from = 0, to = 0;  // GPUs
};

struct HostRings {
  int rings = 1;
  // Of several rings only (one ring may go in any order):
  std::vector<std::vector<int>> hosts;     // members of each host, as given
  std::vector<std::vector<HostHop>> hops;  // by host, of each ring to the next host, and from the last to the first
};

// `gpus`: distinct, those of one host beside each other.
HostRings host_rings(const Network& network, const std::vector<int>& gpus);

}  // namespace plait::topology
