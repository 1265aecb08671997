#include "topology/machine.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace plait::topology {

void set_access(Graph& graph, const std::vector<PeerStatus>& peers) {
  graph.no_access.clear();
  const auto host = [&](int node) { return graph.nodes[static_cast<std::size_t>(node)].host; };
  for (const PeerStatus& peer : peers) {
    if (peer.access == PeerAccess::no && host(peer.from) == host(peer.to)) graph.no_access.push_back({peer.from, peer.to});
  }
  std::sort(graph.no_access.begin(), graph.no_access.end());
}

int count_cpus(std::string_view cpus) {
  constexpr int most = 1 << 20;
  int count = 0;
  const char* at = cpus.data();
  const char* const end = at + cpus.size();
  while (at != end) {
    int first = 0, last = 0;
    auto [rest, status] = std::from_chars(at, end, first);
    if (status != std::errc()) return 0;
    last = first;
    if (rest != end && *rest == '-') {
      const auto range = std::from_chars(rest + 1, end, last);
      if (range.ec != std::errc()) return 0;
      rest = range.ptr;
    }
    if (first < 0 || last < first || last > most) return 0;
    count += last - first + 1;
    if (count > most || (rest != end && (*rest != ',' || rest + 1 == end))) return 0;
    at = rest == end ? end : rest + 1;
  }
  return count;
}

}  // namespace plait::topology
