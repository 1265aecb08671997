// Our own format of topologies: everything that a Graph holds, as JSON.
//
//   {"format": "plait-topology", "version": 1,
//    "nodes": [{"name": "gpu0", "kind": "gpu", "host": 0, "index": 0, "numa": 0, "bus_id": "0000:1b:00.0", "model": "sm90"},
//              {"name": "mlx5_0", "kind": "nic", "host": 0, "numa": 0, "port_gb_per_s": 50}, ...],
//    "edges": [{"a": "gpu0", "b": "nvswitch", "kind": "nvlink", "lanes": 18, "gb_per_s": 370.8, "bandwidth_from": "nominal",
//               "latency_us": 0.6, "latency_from": "nominal"}, ...],
//    "pairs": [{"from": "gpu0", "to": "gpu1", "gb_per_s": 393.2, "latency_us": 1.9}, ...],
//    "driver": "580.82.07",
//    "cpus": [{"numa": 0, "cpus": "0-47", "memory_bytes": 540612395008}, ...],
//    "gpus": [{"gpu": "gpu0", "name": "NVIDIA H200", "memory_bytes": 150754820096, "multiprocessors": 132}, ...],
//    "peers": [{"from": "gpu0", "to": "gpu1", "access": "yes", "native_atomics": 1, "performance_rank": 0}, ...],
//    "findings": [{"about": "IOMMU", "value": "none in use"}, ...]}
//
// Kinds and origins have the names of graph.h. Of a node only `name` and `kind` must be given, and a GPU's `index`; of
// an edge `a`, `b`, `kind` and `gb_per_s`: its latency is the nominal one without, and a figure whose origin is not told is
// imported. `pairs` hold what was measured, one direction each. What follows them is a Machine (machine.h): for people, and
// left out where nothing is known; only `peers` without access are also the graph's (no_access).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "topology/import.h"

namespace plait::topology {

// Reading the result back gives an equal graph and an equal machine.
nlohmann::ordered_json to_json(const Graph& graph, const Machine& machine = {});

// Like `to_json(graph, machine).dump()`, but with one node, edge or pair per line.
std::string to_json_text(const Graph& graph, const Machine& machine = {});

// Strict: an unknown or repeated key, a wrong type, a name that no node has and everything that problems_of() finds is a
// ConfigError with the line.
Imported import_topology_json(std::string_view text, const std::string& name, GpusNeeded gpus = GpusNeeded::yes);

}  // namespace plait::topology
