// The rings that carry a collective over hosts: how many there are, and by which NICs each of them goes from host to host.
//
// NCCL runs one ring per channel, and looks for rings that leave and enter every host by different NICs (src/graph/search.cc,
// rings.cc). So does this, from the routes alone: between two consecutive hosts it pairs members whose ways leave by different
// NICs and enter by different ones, the shortest way (on one rail) first; among equally short ways, or ways that leave by one
// NIC, the lowest member. There are as many rings as the two hosts with the fewest such pairs have. Bandwidth plays no part in
// it, so that more of it never makes a collective slower.
//
// Each ring takes an equal share of the bytes and visits all members. Within a host all rings go round in one cyclic order,
// which each ring leaves open after the member by which it leaves: from that member to the next go all rings but that one. So
// where all members have NICs of their own, each sends and receives as much as in one ring. (The member by which a ring enters
// makes no difference to that, and is not followed from host to host.)
#pragma once

#include <vector>

#include "topology/fabric.h"

namespace plait::topology {

struct HostHop {
  int from = 0, to = 0;  // GPUs
};

struct HostRings {
  int rings = 1;
  // Only for more than one ring (a single ring may go in any order):
  std::vector<std::vector<int>> hosts;     // members of each host, as given
  std::vector<std::vector<HostHop>> hops;  // by host, of each ring to the next host, and from the last to the first
};

// `gpus`: distinct, with those of one host next to each other.
HostRings host_rings(const Network& network, const std::vector<int>& gpus);

}  // namespace plait::topology
