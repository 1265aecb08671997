// The simulator's view of a machine: where transfers cross the same channel. It comes from a Fabric, or from anything else that
// knows.
#pragma once

#include <functional>
#include <vector>

#include "topology/fabric.h"

namespace plait::topology {

struct Network {
  // A channel is at least as wide as the ways across it: measurements override nominal figures.
  std::vector<Channel> channels;
  std::vector<int> host_of;                                 // by GPU
  std::function<const Way&(int from, int to)> way;          // by GPUs; the reference is valid until the next call
  std::function<const Way&(int from, int to)> message_way;  // for messages, if their way differs; else like `way`

  int gpus() const { return static_cast<int>(host_of.size()); }
};

// `fabric` has to outlive it.
Network network_of(Fabric& fabric);

}  // namespace plait::topology
