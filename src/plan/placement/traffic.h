// The data that the ranks of a layout send one another in one optimizer step, as far as placement depends on it. Plain data.
#pragma once

#include <vector>

#include "parallel/mesh.h"

namespace plait::plan {

// Collectives of a group, as rings: each member sends `bytes` to the next one, in `rounds` messages that follow one another.
// (An all-reduce of B bytes over n ranks: 2 (n - 1) / n × B in 2 (n - 1) rounds; Patarasuk and Yuan 2009.) Sums over a step.
struct RingTraffic {
  double bytes = 0;
  double rounds = 0;
};

// Messages from one pipeline rank to another, between ranks that differ in nothing else. Sums over a step.
struct ChainTraffic {
  int from = 0, to = 0;  // pipeline ranks
  double bytes = 0;      // of all messages
  double messages = 0;
};

// The traffic of all groups of one kind, each group by itself. by_pipeline: of a group whose lowest rank is on that pipeline
// rank.
struct GroupTraffic {
  parallel::Group group;
  std::vector<RingTraffic> by_pipeline;
};

struct Traffic {
  parallel::Layout layout;
  parallel::ModelEnds ends;
  std::vector<GroupTraffic> rings;  // each kind of group once
  std::vector<ChainTraffic> chain;  // activations and gradients, by directed pair of pipeline ranks, each pair once

  // The traffic of a kind of group, by pipeline rank; zeros (added by the first one) where there was none.
  std::vector<RingTraffic>& of(const parallel::Group& group);
  std::vector<RingTraffic> of(const parallel::Group& group) const;
};

}  // namespace plait::plan
