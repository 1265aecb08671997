// The rings of a group of GPUs: the cyclic orders in which its members can pass data on, and the channels that no order avoids.
//
// Communication libraries choose the order themselves, so a placement is judged by the best one. For up to `exact_ring_members`
// members the best order is found exactly, by dynamic programming over subsets (Held and Karp 1962, for the bottleneck instead
// of the sum). Larger groups are ordered by host and number, as NCCL chains them. A group that uses several rings
// (topology/host_rings.h) goes from host to host as they do, and within each host in the order that suits its members there
// best.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "topology/fabric.h"
#include "topology/host_rings.h"

namespace plait::plan {

inline constexpr int exact_ring_members = 12;

// The bandwidth of a ring's narrowest hop and the latency of its slowest; for several rings, the sum of their shares.
struct RingHops {
  double gb_per_s = 0;
  double latency_us = 0;
};

struct Ring {
  std::vector<int> members;    // GPUs in ascending order
  topology::HostRings across;  // hosts
  // The orders worth choosing from, by their hops: the widest first, each later one narrower and of less latency. Empty if some
  // members cannot reach each other. A group of one has one choice, of unlimited bandwidth.
  std::vector<RingHops> choices;
  // The channels between any two members, ascending; crossed[i] says if every ring must cross channels[i]. That depends on the
  // ways alone, not on their bandwidth, so neither a tie nor a wider link changes it. Found when first asked for.
  std::vector<int> channels;
  std::vector<std::int8_t> crossed;  // 1, 0, or -1: not known yet
  // The share of the group's bytes that crosses each of the channels; empty: all of them.
  std::vector<double> shares;

  double share(std::size_t index) const { return shares.empty() ? 1 : shares[index]; }
};

struct Crossed {
  int channel = 0;   // index into Fabric::channels()
  double share = 1;  // of the group's bytes
};

class Rings {
 public:
  // `fabric` must outlive this. Not thread-safe.
  explicit Rings(topology::Fabric& fabric);

  // The ring of distinct GPUs in any order; sorts `members`. The reference stays valid.
  Ring& of(std::vector<int>& members);
  // The same for GPUs as bits, in a fabric of at most 16.
  Ring& of_mask(std::uint32_t mask);

  // True if no ring of these members avoids the channel ring.channels[index].
  bool must_cross(Ring& ring, std::size_t index);
  // All channels that must be crossed, ascending.
  const std::vector<Crossed>& crossed(Ring& ring);

  // A cyclic order of one ring with these hops, which must be one of ring.choices; starts at the lowest member.
  std::vector<int> order(const Ring& ring, const RingHops& hops);
  // The hops of all rings with one of ring.choices, each once. If some members cannot reach each other, the hops in the order
  // of their numbers.
  std::vector<topology::HostHop> hops(const Ring& ring, const RingHops& choice);

  topology::Fabric& fabric() { return fabric_; }

 private:
  struct MembersHash {
    std::size_t operator()(const std::vector<int>& members) const;
  };
  void find(Ring& ring);
  void find_exactly(Ring& ring);
  void find_across(Ring& ring);

  topology::Fabric& fabric_;
  const topology::Network network_;  // the network of fabric_
  std::vector<Ring*> by_mask_;       // for fabrics of up to 16 GPUs
  std::unordered_map<std::vector<int>, Ring, MembersHash> rings_;
  std::unordered_map<const Ring*, std::vector<Crossed>> crossed_;
};

}  // namespace plait::plan
