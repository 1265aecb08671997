// The ring of a group of GPUs: in which cyclic order its members pass data on, and what that order cannot avoid.
//
// Communication libraries choose the order themselves, so a placement is to be judged by the best one. For up to
// `exact_ring_members` members that is found exactly, by dynamic programming over subsets (Held and Karp 1962, for the
// bottleneck instead of the sum); larger groups go by host and number, as NCCL chains them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "plan/fabric.h"

namespace plait::plan {

inline constexpr int exact_ring_members = 12;

// What the narrowest and the slowest hop of a ring offer.
struct RingHops {
  double gb_per_s = 0;
  double latency_us = 0;
};

struct Ring {
  std::vector<int> members;  // GPUs in ascending order
  // The orders worth choosing from, by their hops: the widest first, each later one narrower and of less latency. Empty: the
  // members cannot reach each other all. A group of one has one without limit.
  std::vector<RingHops> choices;
  // Channels on the way between two members, ascending, and of each whether every ring crosses it: which depends on the ways
  // alone, not on their bandwidth, so neither a tie nor a wider link changes it. Found when first asked for.
  std::vector<int> channels;
  std::vector<std::int8_t> crossed;  // 1, 0, or -1: not known yet
};

class Rings {
 public:
  // `fabric` must outlive this. Not for several threads at once.
  explicit Rings(Fabric& fabric);

  // Of distinct GPUs in any order; sorts `members`. The reference stays good.
  Ring& of(std::vector<int>& members);
  // The same for GPUs as bits, where the fabric has no more than 16.
  Ring& of_mask(std::uint32_t mask);

  // Whether no ring of these members avoids the channel ring.channels[index].
  bool must_cross(Ring& ring, std::size_t index);
  // Indices into Fabric::channels() of all that must be crossed.
  const std::vector<int>& crossed(Ring& ring);

  // A cyclic order with these hops, which are one of ring.choices; starts at the lowest member.
  std::vector<int> order(const Ring& ring, const RingHops& hops);

  Fabric& fabric() { return fabric_; }

 private:
  struct MembersHash {
    std::size_t operator()(const std::vector<int>& members) const;
  };
  void find(Ring& ring);
  void find_exactly(Ring& ring);

  Fabric& fabric_;
  std::vector<Ring*> by_mask_;  // of fabrics with up to 16 GPUs
  std::unordered_map<std::vector<int>, Ring, MembersHash> rings_;
  std::unordered_map<const Ring*, std::vector<int>> crossed_;
};

}  // namespace plait::plan
