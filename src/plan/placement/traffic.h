// What the ranks of a layout send one another in one optimizer step, as far as it matters where they are: plain data.
#pragma once

#include <vector>

#include "parallel/mesh.h"

namespace plait::plan {

// Collectives of a group, as rings: each member sends `bytes` to the next one and needs `rounds` messages one after the other
// to do so. (An all-reduce of B bytes over n ranks: 2 (n - 1) / n × B in 2 (n - 1) rounds; Patarasuk and Yuan 2009.) Sums of a
// step.
struct RingTraffic {
  double bytes = 0;
  double rounds = 0;
};

// Messages from one pipeline rank to another, between ranks that differ in nothing else. Sums of a step.
struct ChainTraffic {
  int from = 0, to = 0;  // pipeline ranks
  double bytes = 0;      // of all messages
  double messages = 0;
};

// What all groups of one kind send, each by itself. by_pipeline: of a group whose lowest rank is on that pipeline rank.
struct GroupTraffic {
  parallel::Group group;
  std::vector<RingTraffic> by_pipeline;
};

struct Traffic {
  parallel::Layout layout;
  parallel::ModelEnds ends;
  std::vector<GroupTraffic> rings;  // each kind of group once
  std::vector<ChainTraffic> chain;  // activations and gradients, by directed pair of pipeline ranks, each pair once

  // Of a kind of group, zeros where there was nothing yet; by pipeline rank.
  std::vector<RingTraffic>& of(const parallel::Group& group);
  std::vector<RingTraffic> of(const parallel::Group& group) const;
};

}  // namespace plait::plan
