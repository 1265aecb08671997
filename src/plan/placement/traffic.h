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

// Messages from one pipeline rank to another, between ranks of the same data and tensor coordinates. Sums of a step.
struct ChainTraffic {
  int from = 0, to = 0;  // pipeline ranks
  double bytes = 0;      // of all messages
  double messages = 0;
};

struct Traffic {
  parallel::Layout layout;
  std::vector<RingTraffic> tensor;  // by pipeline rank; each tensor group of that pipeline rank
  std::vector<RingTraffic> data;    // by pipeline rank; each data group of that pipeline rank
  RingTraffic tied;                 // between first and last stage, which share the embedding's table
  parallel::ModelEnds ends;
  std::vector<ChainTraffic> chain;  // activations and gradients, by directed pair of pipeline ranks, each pair once
};

}  // namespace plait::plan
