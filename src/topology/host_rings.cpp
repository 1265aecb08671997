#include "topology/host_rings.h"

#include <algorithm>
#include <tuple>

#include "core/index.h"

namespace plait::topology {
namespace {

// Pairs of a member here and one there whose ways have no NIC in common.
std::vector<HostHop> hops_between(const Network& network, const std::vector<int>& here, const std::vector<int>& there) {
  struct Candidate {
    std::size_t edges = 0;
    int from = 0, to = 0, exit = 0, entry = 0;
  };
  std::vector<Candidate> candidates;
  for (const int from : here) {
    for (const int to : there) {
      const Way& way = network.way(from, to);
      if (way.exit_channel >= 0) candidates.push_back({way.channels.size(), from, to, way.exit_channel, way.entry_channel});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.edges, a.from, a.to) < std::tie(b.edges, b.from, b.to);
  });
  std::vector<HostHop> hops;
  std::vector<int> exits, entries;
  const auto contains = [](const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  for (const Candidate& c : candidates) {
    const bool taken =
        contains(exits, c.exit) || contains(entries, c.entry) ||
        std::any_of(hops.begin(), hops.end(), [&](const HostHop& h) { return h.from == c.from || h.to == c.to; });
    if (taken) continue;
    hops.push_back({c.from, c.to});
    exits.push_back(c.exit);
    entries.push_back(c.entry);
  }
  return hops;
}

}  // namespace

HostRings host_rings(const Network& network, const std::vector<int>& gpus) {
  HostRings result;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (i == 0 || network.host_of[at(gpus[i])] != network.host_of[at(gpus[i - 1])]) result.hosts.emplace_back();
    result.hosts.back().push_back(gpus[i]);
  }
  const auto alone = [](const std::vector<int>& host) { return host.size() == 1; };
  if (result.hosts.size() < 2 || std::any_of(result.hosts.begin(), result.hosts.end(), alone)) return {};
  std::size_t rings = gpus.size();
  for (std::size_t h = 0; h < result.hosts.size() && rings > 1; ++h) {
    result.hops.push_back(hops_between(network, result.hosts[h], result.hosts[(h + 1) % result.hosts.size()]));
    rings = std::min(rings, result.hops.back().size());
  }
  if (rings < 2) return {};
  for (std::vector<HostHop>& hops : result.hops) hops.resize(rings);
  result.rings = static_cast<int>(rings);
  return result;
}

}  // namespace plait::topology
