#include "comm/topology/live.h"

#include "comm/p2p/pair_facts.h"

namespace plait::comm::topology {
namespace {

// As one end of a pair sees the other; the facts that take a context to find out are left out.
p2p::EndFacts end_of(int ordinal, const std::string& bus_id, const p2p::ProcessIdentity& process) {
  p2p::EndFacts end;
  end.rank = end.ordinal = ordinal;
  end.process = process;
  end.kind = DeviceKind::cuda;
  end.bus_id = bus_id;
  return end;
}

}  // namespace

Discovered discover_live() {
  const std::vector<std::string> visible = cuda_gpus();
  Discovered found = discover({.cuda_gpus = visible});
  const p2p::ProcessIdentity process = p2p::this_process();
  for (PeerStatus& peer : found.machine.peers) {
    const auto index = [&](int node) { return found.graph.nodes[static_cast<std::size_t>(node)].index; };
    const int from = index(peer.from), to = index(peer.to), count = static_cast<int>(visible.size());
    if (from >= count || to >= count) continue;
    const p2p::PathFacts path = p2p::path_facts(end_of(from, visible[static_cast<std::size_t>(from)], process),
                                                end_of(to, visible[static_cast<std::size_t>(to)], process));
    if (!path.visible) continue;
    peer.access = path.peer_access ? PeerAccess::yes : PeerAccess::no;
    if (path.peer_access)
      peer.why.clear();
    else if (peer.why.empty())
      peer.why = path.why_no_access.empty() ? "CUDA does not permit it" : path.why_no_access;
    peer.native_atomics = path.native_atomics ? 1 : 0;
    peer.performance_rank = path.performance_rank;
  }
  return found;
}

}  // namespace plait::comm::topology
