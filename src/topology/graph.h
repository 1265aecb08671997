// The machine or cluster that ranks are placed on, as plain data: what is connected to what, and how fast.
//
// Nodes are GPUs and everything between them; edges are links between two nodes that carry the same bandwidth in both
// directions at once (full duplex). Flows that cross the same edge in the same direction share its bandwidth, so a PCIe uplink
// or a NIC that GPUs share is one edge. Nothing here asks a live machine; see import.h for where graphs come from and routes.h
// for the way from one GPU to another.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/names.h"

namespace plait::topology {

enum class NodeKind {
  gpu,
  nvswitch,     // all NVSwitches of the same GPUs: one node, as every GPU has lanes to each of them
  pcie_switch,  // or bridge
  host_bridge,  // a PCIe root complex of a NUMA node that has more than one; left out where the source does not tell them apart
  numa,         // a NUMA node: its CPU cores and memory
  nic,
  network  // a switch of the network, or all of it
};

enum class LinkKind {
  nvlink,  // GPU to GPU, NVSwitch, or NUMA node (POWER9)
  xgmi,    // AMD's links between GPUs
  c2c,     // NVLink-C2C between a GPU and the CPU of its module
  pcie,
  pcie_peer,  // between two partitions of one PCIe switch (NCCL's <pcilink>): never the bottleneck
  smp,        // between NUMA nodes of one host
  network     // NIC to network, or between parts of the network
};

// The source of a figure, least trusted first.
enum class Origin { nominal, imported, measured };

struct Node {
  NodeKind kind = NodeKind::gpu;
  std::string name;          // unique in the graph
  int host = 0;              // -1: of no host (network; an NVSwitch that joins hosts)
  int index = -1;            // GPUs: their number within the host; otherwise -1
  int numa = -1;             // GPUs, NICs, host bridges, NUMA nodes: the number of the NUMA node; -1 if unknown
  std::string bus_id = {};   // "0000:1b:00.0", or ""
  std::string model = {};    // GPUs: "sm90", "gfx906", or ""
  double port_gb_per_s = 0;  // NICs: all their ports together, one direction; 0 if unknown
  friend bool operator==(const Node&, const Node&) = default;
};

struct Edge {
  int a = 0, b = 0;  // indices of nodes
  LinkKind kind = LinkKind::pcie;
  int lanes = 0;          // of nvlink, xgmi and c2c; otherwise 0
  double gb_per_s = 0;    // 1e9 bytes per second, in each direction
  double latency_us = 0;  // one way
  Origin bandwidth_from = Origin::nominal;
  Origin latency_from = Origin::nominal;
  friend bool operator==(const Edge&, const Edge&) = default;
};

// A measurement between two GPUs, in one direction; it overrides the figures of their path's edges.
struct PairMeasurement {
  int from = 0, to = 0;  // indices of nodes
  double gb_per_s = 0;
  double latency_us = 0;
  friend bool operator==(const PairMeasurement&, const PairMeasurement&) = default;
};

// Two GPUs of one host that communicate through its memory regardless of their links (comm.p2p, comm.peer_access): the lower
// node first.
struct HostPair {
  int a = 0, b = 0;
  bool collectives = false;  // for collectives too; else for messages only
  friend bool operator==(const HostPair&, const HostPair&) = default;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<PairMeasurement> pairs;
  // Pairs of GPU nodes of one host, of which the first has no peer access to the second: traffic between them needs a third GPU
  // or the host's memory (routes.h). Sorted. For other pairs access exists or is unknown.
  std::vector<std::pair<int, int>> no_access;
  std::vector<HostPair> host_pairs;  // sorted by their nodes; set for a job, never stored in a file
  friend bool operator==(const Graph&, const Graph&) = default;
};

// The limits of a graph: 1,024 hosts with 16 GPUs and their surroundings. Importers refuse more.
inline constexpr int max_nodes = 1 << 18;
inline constexpr int max_edges = 1 << 20;
inline constexpr int max_lanes = 64;        // between two nodes
inline constexpr int max_number = 1 << 20;  // of a host, a GPU of it or a NUMA node
inline constexpr std::size_t max_name_bytes = 256;
inline constexpr double max_gb_per_s = 1e6;
inline constexpr double max_latency_us = 1e6;

// The problems of a graph, one sentence each: no GPU, names or GPU numbers used twice, edges to themselves or to nowhere,
// figures that are not positive (bandwidth), negative (latency) or not finite, names that are not UTF-8. Empty for a usable
// graph.
std::vector<std::string> problems_of(const Graph& graph);

// Indices of the GPUs' nodes by host and number: this order defines a GPU's number everywhere.
std::vector<int> gpus_of(const Graph& graph);

// Groups of GPUs (as indices of nodes, each group and the groups in the order of gpus_of) that nvlink or xgmi edges join
// directly or by a common NVSwitch: `components` any number of links apart, so each GPU is in exactly one, maybe alone;
// `cliques` every largest group of two or more in which any two GPUs share a link or switch.
std::vector<std::vector<int>> nvlink_components(const Graph& graph);
std::vector<std::vector<int>> nvlink_cliques(const Graph& graph);

// The machine with some of its nodes left out: those for which `keep` holds, in their order, with the edges and measurements
// between them.
Graph part_of(const Graph& graph, const std::function<bool(const Node&)>& keep);

}  // namespace plait::topology

// As in our JSON, and in messages.
namespace plait {
template <>
inline constexpr auto names<topology::NodeKind> =
    std::to_array<Name<topology::NodeKind>>({{topology::NodeKind::gpu, "gpu"},
                                             {topology::NodeKind::nvswitch, "nvswitch"},
                                             {topology::NodeKind::pcie_switch, "pcie_switch"},
                                             {topology::NodeKind::host_bridge, "host_bridge"},
                                             {topology::NodeKind::numa, "numa"},
                                             {topology::NodeKind::nic, "nic"},
                                             {topology::NodeKind::network, "network"}});
template <>
inline constexpr auto names<topology::LinkKind> =
    std::to_array<Name<topology::LinkKind>>({{topology::LinkKind::nvlink, "nvlink"},
                                             {topology::LinkKind::xgmi, "xgmi"},
                                             {topology::LinkKind::c2c, "c2c"},
                                             {topology::LinkKind::pcie, "pcie"},
                                             {topology::LinkKind::pcie_peer, "pcie_peer"},
                                             {topology::LinkKind::smp, "smp"},
                                             {topology::LinkKind::network, "network"}});
template <>
inline constexpr auto names<topology::Origin> =
    std::to_array<Name<topology::Origin>>({{topology::Origin::nominal, "nominal"},
                                           {topology::Origin::imported, "imported"},
                                           {topology::Origin::measured, "measured"}});
}  // namespace plait
