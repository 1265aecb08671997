// A whole topology for people: what `plait topo` prints.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/import.h"
#include "topology/machine.h"

namespace plait::topology {

// Everything that topology/draw.h draws of each host, hosts that are alike once; then how hosts are joined, the findings, and
// the importer's warnings. Latencies only where one is not nominal. `origin` is the first line. `width`: of the lines of
// matrices (topology/draw.h).
std::string describe(const std::string& origin, const Graph& graph, const Machine& machine,
                     const std::vector<ImportWarning>& warnings, int width = 0);

}  // namespace plait::topology
