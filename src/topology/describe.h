// Describes a whole topology for people: the output of `plait topo`.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/import.h"
#include "topology/machine.h"

namespace plait::topology {

// Each host, equal hosts once; then the connections between hosts, the findings, and the importer's warnings. Latencies are
// drawn only if one is not nominal. `origin` is the first line. `width`: of the lines of matrices, as below.
std::string describe(const std::string& origin, const Graph& graph, const Machine& machine,
                     const std::vector<ImportWarning>& warnings, int width = 0);

// The parts of the output, which describe() puts together.

// `width`: of a line, in characters; wider matrices are drawn in parts, one below the other. 0: no limit.

// The matrix as `nvidia-smi topo -m` draws it, with the link names of routes.h ("NVS18": lanes to NVSwitches), NICs and the
// affinity of processors and NUMA nodes; a legend of the names that occur. For one host.
std::string draw_matrix(const Graph& host, const Machine& machine, int width = 0);

// GB/s, or microseconds, from each GPU (row) to each other (column). Figures are nominal unless marked: "i" imported, "m"
// measured.
std::string draw_bandwidths(const Graph& host, int width = 0);
std::string draw_latencies(const Graph& host, int width = 0);

// NVLink pairs with their lanes, largest groups in which every GPU has a link to each other, and NUMA nodes with their devices.
std::string describe_nvlinks(const Graph& host);
std::string describe_numa_nodes(const Graph& host, const Machine& machine);

// Names and sizes of GPUs, equal ones in one line: "  GPU0 to GPU7  NVIDIA H200, 140.4 GiB, 132 SMs". "" if nothing is known.
std::string describe_gpus(const Graph& host, const Machine& machine);

// The pairs that reach each other's memory, and the reasons of those that do not; the findings.
std::string describe_peers(const Graph& host, const Machine& machine);
std::string describe_findings(const Machine& machine);

}  // namespace plait::topology
