#include "site/live_graph.h"

#include <set>

#include "core/error.h"
#include "topology/discover.h"
#include "topology/graph.h"
#include "topology/routes.h"

namespace plait::site {

topology::Graph live_graph(int gpus) {
  // GPUs that this process does not see cannot hold a rank.
  topology::Graph graph = topology::part_of(topology::discover_live().graph, [&](const topology::Node& node) {
    return node.kind != topology::NodeKind::gpu || node.index < gpus;
  });
  if (static_cast<int>(topology::gpus_of(graph).size()) < gpus) {
    throw ConfigError(
        "placement.topology: not all of this machine's GPUs were found (see `plait topo`); give a file, or placement.strategy: "
        "order");
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
      const std::string link =
          routes.summary(routes.gpus()[static_cast<std::size_t>(from)], routes.gpus()[static_cast<std::size_t>(to)]).link;
      if (known.insert(link).second) pairs.push_back({link, from, to});
    }
  }
  return pairs;
}

}  // namespace plait::site
