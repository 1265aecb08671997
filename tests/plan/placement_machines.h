// Machines and traffic for tests of placement.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "parallel/make_layout.h"
#include "plan/placement/traffic.h"
#include "topology/fabric.h"
#include "topology/nominal.h"
#include "topology/topology_files.h"

namespace plait::plan::test {

// With the address sanitizer, long tests do an eighth of their work.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr int thinning = 8;
#else
inline constexpr int thinning = 1;
#endif

inline topology::Graph machine(const std::string& fixture) {
  return topology::import_topology(topology::test::fixture(fixture)).graph;
}

inline const std::vector<std::string>& machines_of_up_to_8() {
  static const std::vector<std::string> names = {"one_bridge_3.txt", "bridge_pairs.xml", "two_sockets.xml", "dgx1v.txt",
                                                 "bridges_8.txt",    "pcie_8.txt",       "hives_8.txt",     "rings_8.txt",
                                                 "nvswitch8.xml",    "rails_2x4.json"};
  return names;
}

// The same amounts for all pipeline ranks, in GB per step: tensor, data and tied rings, and each direction of the pipeline, in
// `messages` messages.
struct Amounts {
  double tensor = 0, data = 0, tied = 0, forward = 0, backward = 0;
  double messages = 16;
};

inline Traffic traffic(parallel::Layout layout, const Amounts& amounts) {
  Traffic traffic;
  traffic.layout = layout;
  const auto ring = [](double gb, int members) { return RingTraffic{gb * 1e9, gb > 0 ? 2.0 * (members - 1) : 0}; };
  traffic.of(parallel::groups::tensor)
      .assign(static_cast<std::size_t>(layout.size(Axis::pipeline)), ring(amounts.tensor, layout.size(Axis::tensor)));
  traffic.of(parallel::groups::replicas)
      .assign(static_cast<std::size_t>(layout.size(Axis::pipeline)), ring(amounts.data, layout.size(Axis::data)));
  traffic.of(parallel::groups::tied).front() = ring(amounts.tied, 2);
  traffic.ends.last = layout.size(Axis::pipeline) - 1;
  for (int p = 0; p + 1 < layout.size(Axis::pipeline); ++p) {
    if (amounts.forward > 0) traffic.chain.push_back({p, p + 1, amounts.forward * 1e9, amounts.messages});
    if (amounts.backward > 0) traffic.chain.push_back({p + 1, p, amounts.backward * 1e9, amounts.messages});
  }
  return traffic;
}

// All layouts of exactly `ranks` ranks.
inline std::vector<parallel::Layout> layouts_of(int ranks) {
  std::vector<parallel::Layout> layouts;
  for (int p = 1; p <= ranks; ++p) {
    for (int d = 1; p * d <= ranks; ++d) {
      if (ranks % (p * d) == 0) layouts.push_back(parallel::make_layout(p, d, ranks / (p * d)));
    }
  }
  return layouts;
}

inline int add_node(topology::Graph& graph, topology::NodeKind kind, const std::string& name, int host, int index = -1,
                    int numa = -1) {
  topology::Node node;
  node.kind = kind;
  node.name = name;
  node.host = host;
  node.index = index;
  node.numa = numa;
  graph.nodes.push_back(node);
  return static_cast<int>(graph.nodes.size()) - 1;
}

// Two sockets with two GPUs each: all traffic between them crosses one link.
inline topology::Graph two_bare_sockets() {
  using topology::LinkKind;
  using topology::NodeKind;
  topology::Graph g;
  for (int i = 0; i < 4; ++i)
    g.nodes.push_back({.kind = NodeKind::gpu, .name = "gpu" + std::to_string(i), .index = i, .numa = i / 2});
  for (int n = 0; n < 2; ++n) g.nodes.push_back({.kind = NodeKind::numa, .name = "numa" + std::to_string(n), .numa = n});
  for (int i = 0; i < 4; ++i)
    g.edges.push_back({.a = i, .b = 4 + i / 2, .kind = LinkKind::pcie, .gb_per_s = 12, .latency_us = 1});
  g.edges.push_back({.a = 4, .b = 5, .kind = LinkKind::smp, .gb_per_s = 8, .latency_us = 2});
  return g;
}

// The same with an NVLink between GPUs 0 and 1.
inline topology::Graph two_sockets() {
  topology::Graph g = two_bare_sockets();
  g.edges.push_back({.a = 0, .b = 1, .kind = topology::LinkKind::nvlink, .lanes = 2, .gb_per_s = 40, .latency_us = 0.5});
  return g;
}

// Two sockets, some GPUs below a switch of two, some NVLinks here and there.
inline topology::Graph random_machine(std::mt19937& random, int gpus) {
  using topology::LinkKind;
  using topology::NodeKind;
  topology::Graph graph;
  const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  const int sockets[] = {add_node(graph, topology::NodeKind::numa, "numa0", 0, -1, 0),
                         add_node(graph, topology::NodeKind::numa, "numa1", 0, -1, 1)};
  graph.edges.push_back(topology::nominal_edge(sockets[0], sockets[1], topology::LinkKind::smp, chance(50) ? 8 : 16));
  std::vector<int> nodes;
  int parent = -1, below = 0;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const int socket = static_cast<int>(random() % 2);
    nodes.push_back(add_node(graph, topology::NodeKind::gpu, "gpu" + std::to_string(gpu), 0, gpu, socket));
    if (parent < 0 || below == 2 || chance(40)) {
      parent = sockets[socket];
      below = 0;
      if (chance(60)) {
        parent = add_node(graph, topology::NodeKind::pcie_switch, "switch" + std::to_string(gpu), 0, -1, socket);
        graph.edges.push_back(topology::nominal_edge(sockets[socket], parent, topology::LinkKind::pcie, chance(50) ? 12 : 24));
      }
    }
    ++below;
    graph.edges.push_back(topology::nominal_edge(nodes.back(), parent, topology::LinkKind::pcie, chance(70) ? 12 : 24));
  }
  const int links = 10 + static_cast<int>(random() % 40);
  for (int a = 0; a < gpus; ++a) {
    for (int b = a + 1; b < gpus; ++b) {
      if (!chance(links)) continue;
      const int lanes = 1 + static_cast<int>(random() % 3);
      graph.edges.push_back(topology::nominal_edge(nodes[static_cast<std::size_t>(a)], nodes[static_cast<std::size_t>(b)],
                                                   topology::LinkKind::nvlink, 20.6 * lanes, lanes));
    }
  }
  return graph;
}

// Hosts with eight GPUs at an NVSwitch, a NIC of 400 Gbit/s for each GPU, a leaf switch for each rail, and a spine.
inline topology::Graph rail_cluster(int hosts, int hosts_in_pod = 1 << 20) {
  using topology::LinkKind;
  using topology::NodeKind;
  topology::Graph graph;
  const int spine = add_node(graph, topology::NodeKind::network, "spine", -1);
  std::vector<int> leaves;
  for (int h = 0; h < hosts; ++h) {
    const std::string host = "host" + std::to_string(h) + "/";
    if (h % hosts_in_pod == 0) {
      leaves.clear();
      for (int g = 0; g < 8; ++g) {
        leaves.push_back(add_node(graph, topology::NodeKind::network, host + "leaf" + std::to_string(g), -1));
        graph.edges.push_back(topology::nominal_edge(leaves.back(), spine, topology::LinkKind::network, 400));
      }
    }
    const int nvswitch = add_node(graph, topology::NodeKind::nvswitch, host + "nvswitch", h);
    const int numa[] = {add_node(graph, topology::NodeKind::numa, host + "numa0", h, -1, 0),
                        add_node(graph, topology::NodeKind::numa, host + "numa1", h, -1, 1)};
    graph.edges.push_back(topology::nominal_edge(numa[0], numa[1], topology::LinkKind::smp, 16));
    for (int g = 0; g < 8; ++g) {
      const std::string number = std::to_string(g);
      const int gpu = add_node(graph, topology::NodeKind::gpu, host + "gpu" + number, h, g, g / 4);
      const int nic = add_node(graph, topology::NodeKind::nic, host + "nic" + number, h, -1, g / 4);
      const int pcie = add_node(graph, topology::NodeKind::pcie_switch, host + "switch" + number, h, -1, g / 4);
      graph.edges.push_back(topology::nominal_edge(gpu, nvswitch, topology::LinkKind::nvlink, 370.8, 18));
      graph.edges.push_back(topology::nominal_edge(gpu, pcie, topology::LinkKind::pcie, 48));
      graph.edges.push_back(topology::nominal_edge(nic, pcie, topology::LinkKind::pcie, 48));
      graph.edges.push_back(topology::nominal_edge(pcie, numa[g / 4], topology::LinkKind::pcie, 48));
      graph.edges.push_back(topology::nominal_edge(nic, leaves[static_cast<std::size_t>(g)], topology::LinkKind::network, 50));
    }
  }
  return graph;
}

// Hosts with configurable NICs and links.
struct Cluster {
  int hosts = 2, gpus = 4, nics = 4;  // GPUs share NICs evenly, neighbours one
  double nvlink_gb_per_s = 300, pcie_gb_per_s = 100, nic_gb_per_s = 25;

  static constexpr double latency_us = 1;  // of an edge

  // GPUs at an NVSwitch; those of one NIC at a PCIe switch with it; a rail for the NICs of one number, a spine for all rails.
  topology::Graph graph() const {
    using topology::LinkKind;
    using topology::NodeKind;
    topology::Graph graph;
    const auto join = [&](int a, int b, topology::LinkKind kind, double gb_per_s) {
      graph.edges.push_back({.a = a, .b = b, .kind = kind, .gb_per_s = gb_per_s, .latency_us = latency_us});
    };
    const int spine = add_node(graph, topology::NodeKind::network, "spine", -1);
    for (int nic = 0; nic < nics; ++nic) {
      const int rail = add_node(graph, topology::NodeKind::network, "rail" + std::to_string(nic), -1);
      join(rail, spine, topology::LinkKind::network, nic_gb_per_s * hosts);
    }
    for (int host = 0; host < hosts; ++host) {
      const std::string name = "host" + std::to_string(host) + "/";
      const int nvswitch = add_node(graph, topology::NodeKind::nvswitch, name + "nvswitch", host);
      for (int nic = 0; nic < nics; ++nic) {
        const int pcie = add_node(graph, topology::NodeKind::pcie_switch, name + "switch" + std::to_string(nic), host, -1, 0);
        const int port = add_node(graph, topology::NodeKind::nic, name + "nic" + std::to_string(nic), host, -1, 0);
        join(pcie, port, topology::LinkKind::pcie, pcie_gb_per_s);
        join(port, 1 + nic, topology::LinkKind::network, nic_gb_per_s);
        for (int gpu = nic * gpus / nics; gpu < (nic + 1) * gpus / nics; ++gpu) {
          const int node = add_node(graph, topology::NodeKind::gpu, name + "gpu" + std::to_string(gpu), host, gpu, 0);
          join(node, nvswitch, topology::LinkKind::nvlink, nvlink_gb_per_s);
          join(node, pcie, topology::LinkKind::pcie, pcie_gb_per_s);
        }
      }
    }
    return graph;
  }
};

}  // namespace plait::plan::test
