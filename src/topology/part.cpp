#include "topology/part.h"

#include <vector>

namespace plait::topology {

Graph part_of(const Graph& graph, const std::function<bool(const Node&)>& keep) {
  Graph part;
  std::vector<int> number(graph.nodes.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!keep(graph.nodes[i])) continue;
    number[i] = static_cast<int>(part.nodes.size());
    part.nodes.push_back(graph.nodes[i]);
  }
  const auto moved = [&](int node) { return number[static_cast<std::size_t>(node)]; };
  for (Edge edge : graph.edges) {
    edge.a = moved(edge.a), edge.b = moved(edge.b);
    if (edge.a >= 0 && edge.b >= 0) part.edges.push_back(edge);
  }
  for (PairMeasurement pair : graph.pairs) {
    pair.from = moved(pair.from), pair.to = moved(pair.to);
    if (pair.from >= 0 && pair.to >= 0) part.pairs.push_back(pair);
  }
  for (const auto& [from, to] : graph.no_access) {
    if (moved(from) >= 0 && moved(to) >= 0) part.no_access.push_back({moved(from), moved(to)});  // their order is kept
  }
  for (HostPair pair : graph.host_pairs) {
    pair.a = moved(pair.a), pair.b = moved(pair.b);
    if (pair.a >= 0 && pair.b >= 0) part.host_pairs.push_back(pair);
  }
  return part;
}

}  // namespace plait::topology
