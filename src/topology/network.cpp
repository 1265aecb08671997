#include "topology/network.h"

namespace plait::topology {

Network network_of(Fabric& fabric) {
  Network network{
      .channels = fabric.channels(),
      .host_of = {},
      .way = [&fabric](int from, int to) -> const Way& { return fabric.way(from, to); },
      .message_way = [&fabric](int from, int to) -> const Way& { return fabric.message_way(from, to); },
  };
  for (int gpu = 0; gpu < fabric.gpus(); ++gpu) network.host_of.push_back(fabric.gpu(gpu).host);
  return network;
}

}  // namespace plait::topology
