// A machine with some of its nodes left out.
#pragma once

#include <functional>

#include "topology/graph.h"

namespace plait::topology {

// The nodes for which `keep` holds, in their order, with the edges and measurements between them.
Graph part_of(const Graph& graph, const std::function<bool(const Node&)>& keep);

}  // namespace plait::topology
