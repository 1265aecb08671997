#include "train/live_graph.h"

#include <set>

#include "comm/topology/live.h"
#include "comm/topology/routes.h"
#include "core/error.h"

namespace plait::train {

namespace topology = comm::topology;

namespace {

// GPUs that this process does not see are no place for a rank.
topology::Graph only_visible(topology::Graph graph, int visible) {
  std::vector<int> kept(graph.nodes.size(), -1);
  topology::Graph result;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].kind == topology::NodeKind::gpu && graph.nodes[n].index >= visible) continue;
    kept[n] = static_cast<int>(result.nodes.size());
    result.nodes.push_back(graph.nodes[n]);
  }
  const auto moved = [&](int node) { return kept[static_cast<std::size_t>(node)]; };
  for (topology::Edge edge : graph.edges) {
    edge.a = moved(edge.a), edge.b = moved(edge.b);
    if (edge.a >= 0 && edge.b >= 0) result.edges.push_back(edge);
  }
  for (topology::PairMeasurement pair : graph.pairs) {
    pair.from = moved(pair.from), pair.to = moved(pair.to);
    if (pair.from >= 0 && pair.to >= 0) result.pairs.push_back(pair);
  }
  return result;
}

}  // namespace

topology::Graph live_graph(int gpus) {
  topology::Graph graph = only_visible(topology::discover_live().graph, gpus);
  if (static_cast<int>(topology::gpus_of(graph).size()) < gpus) {
    throw ConfigError("placement.topology: this machine's GPUs are not all found (see `plait topo`); give a file, or placement.strategy: order");
  }
  return graph;
}

std::vector<LinkedPair> a_pair_of_each_link(const topology::Graph& graph) {
  const topology::Routes routes(graph);
  const int gpus = static_cast<int>(routes.gpus().size());
  std::set<std::string> known{"none"};
  std::vector<LinkedPair> pairs;
  for (int from = 0; from < gpus; ++from) {
    for (int to = from + 1; to < gpus; ++to) {
      const std::string link = routes.summary(routes.gpus()[static_cast<std::size_t>(from)], routes.gpus()[static_cast<std::size_t>(to)]).link;
      if (known.insert(link).second) pairs.push_back({link, from, to});
    }
  }
  return pairs;
}

}  // namespace plait::train
