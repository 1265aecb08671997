#include "topology/live.h"

#include "topology/gpu_path.h"

namespace plait::topology {

Discovered discover_live() {
  const std::vector<std::string> visible = cuda_gpus();
  Discovered found = discover({.cuda_gpus = visible});
  for (PeerStatus& peer : found.machine.peers) {
    const auto index = [&](int node) { return found.graph.nodes[static_cast<std::size_t>(node)].index; };
    const int from = index(peer.from), to = index(peer.to), count = static_cast<int>(visible.size());
    if (from >= count || to >= count) continue;
    const PathFacts path = gpu_path(from, visible[static_cast<std::size_t>(from)], visible[static_cast<std::size_t>(to)]);
    if (!path.visible) continue;
    peer.access = path.peer_access ? PeerAccess::yes : PeerAccess::no;
    if (path.peer_access)
      peer.why.clear();
    else if (peer.why.empty())
      peer.why = path.why_no_access.empty() ? "CUDA does not permit it" : path.why_no_access;
    peer.native_atomics = path.native_atomics ? 1 : 0;
    peer.performance_rank = path.performance_rank;
  }
  set_access(found.graph, found.machine.peers);
  return found;
}

}  // namespace plait::topology
