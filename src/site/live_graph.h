// The links between the GPUs that ranks of this process run on.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"

namespace plait::site {

// This machine with only the first `gpus` GPUs, numbered as in CUDA: all that this process sees. ConfigError if discovery does
// not find them all.
topology::Graph live_graph(int gpus);

struct LinkedPair {
  std::string link;      // "NV18": topology/routes.h
  int from = 0, to = 1;  // indices into gpus_of()
};

// The first pair, by GPU number, for every kind of link between two GPUs; pairs without a way between them are left out.
std::vector<LinkedPair> a_pair_of_each_link(const topology::Graph& graph);

}  // namespace plait::site
