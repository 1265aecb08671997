// The parts of what `plait topo` prints (topology/describe.h puts them together).
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/machine.h"

namespace plait::topology {

// The matrix as `nvidia-smi topo -m` draws it, with the links' names of routes.h ("NVS18": lanes to NVSwitches), NICs and the
// affinity of processors and NUMA nodes; a legend of the names that occur. Of one host.
std::string draw_matrix(const Graph& host, const Machine& machine);

// GB/s, or microseconds, from each GPU (row) to each other (column). Figures are nominal unless marked: "i" imported, "m"
// measured.
std::string draw_bandwidths(const Graph& host);
std::string draw_latencies(const Graph& host);

// NVLink pairs with their lanes, largest groups in which every GPU has a link to each other, and NUMA nodes with what is at
// them.
std::string describe_nvlinks(const Graph& host);
std::string describe_numa_nodes(const Graph& host, const Machine& machine);

// Which pairs reach each other's memory, and why others do not; the findings.
std::string describe_peers(const Graph& host, const Machine& machine);
std::string describe_findings(const Machine& machine);

}  // namespace plait::topology
