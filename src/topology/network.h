// What the simulator has to know of a machine: where transfers cross the same channel. A Fabric, or whatever else can say so.
#pragma once

#include <functional>
#include <vector>

#include "topology/fabric.h"

namespace plait::topology {

struct Network {
  // A channel is at least as wide as the ways across it: what was measured goes before what is nominal.
  std::vector<Channel> channels;
  std::vector<int> host_of;                                 // by GPU
  std::function<const Way&(int from, int to)> way;          // by GPUs; good until it is asked again
  std::function<const Way&(int from, int to)> message_way;  // of messages, where theirs is another one; else as `way`

  int gpus() const { return static_cast<int>(host_of.size()); }
};

// `fabric` has to outlive it.
Network network_of(Fabric& fabric);

}  // namespace plait::topology
