// Describes a whole topology for people: the output of `plait topo`.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/import.h"
#include "topology/machine.h"

namespace plait::topology {

// Each host as drawn by topology/draw.h, equal hosts once; then the connections between hosts, the findings, and the importer's
// warnings. Latencies are drawn only if one is not nominal. `origin` is the first line. `width`: of the lines of matrices
// (topology/draw.h).
std::string describe(const std::string& origin, const Graph& graph, const Machine& machine,
                     const std::vector<ImportWarning>& warnings, int width = 0);

}  // namespace plait::topology
