#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "topology/nominal.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using test::fixture;
using test::link;
using testing::ElementsAre;
using testing::HasSubstr;

Node node_of(NodeKind kind, const std::string& name, int host = 0, int index = -1) {
  Node node;
  node.kind = kind;
  node.name = name;
  node.host = host;
  node.index = index;
  return node;
}

// Two GPUs at one NUMA node.
Graph small_graph() {
  Graph graph;
  graph.nodes = {node_of(NodeKind::gpu, "b", 0, 1), node_of(NodeKind::gpu, "a", 0, 0), node_of(NodeKind::numa, "numa")};
  graph.edges = {nominal_edge(0, 2, LinkKind::pcie, 12), nominal_edge(1, 2, LinkKind::pcie, 12)};
  return graph;
}

TEST(TopologyGraph, ProblemsAreFound) {
  EXPECT_TRUE(problems_of(small_graph()).empty());
  const auto problem = [](auto&& change) {
    Graph graph = small_graph();
    change(graph);
    const std::vector<std::string> problems = problems_of(graph);
    EXPECT_THROW(Routes{graph}, InternalError);
    return problems.empty() ? "" : problems.front();
  };
  EXPECT_THAT(problem([](Graph& g) { g.nodes[0].name = "a"; }), HasSubstr("two nodes are named 'a'"));
  EXPECT_THAT(problem([](Graph& g) { g.nodes[0].index = 0; }), HasSubstr("two GPUs 0"));
  EXPECT_THAT(problem([](Graph& g) { g.nodes[0].index = -1; }), HasSubstr("without a number"));
  EXPECT_THAT(problem([](Graph& g) { g.edges[0].a = 2; }), HasSubstr("to itself"));
  EXPECT_THAT(problem([](Graph& g) { g.edges[0].a = 3; }), HasSubstr("is not a node"));
  EXPECT_THAT(problem([](Graph& g) { g.edges[0].gb_per_s = 0; }), HasSubstr("bandwidth"));
  EXPECT_THAT(problem([](Graph& g) { g.edges[0].gb_per_s = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("bandwidth"));
  EXPECT_THAT(problem([](Graph& g) { g.edges[1].latency_us = -1; }), HasSubstr("latency"));
  EXPECT_THAT(problem([](Graph& g) { g.pairs = {{0, 2, 1, 1}}; }), HasSubstr("not two GPUs"));
  EXPECT_THAT(problem([](Graph& g) { g.pairs = {{0, 1, 1, 1}, {0, 1, 2, 2}}; }), HasSubstr("twice"));
  EXPECT_THAT(problem([](Graph& g) {
                g.nodes.erase(g.nodes.begin(), g.nodes.begin() + 2);
                g.edges.clear();
              }),
              HasSubstr("no GPU"));
}

TEST(TopologyGraph, GpusAreCountedByHostAndNumber) { EXPECT_THAT(gpus_of(small_graph()), ElementsAre(1, 0)); }

TEST(TopologyGraph, NominalLanes) {
  EXPECT_EQ(nominal_lane_gb_per_s("sm60"), 18);
  EXPECT_EQ(nominal_lane_gb_per_s("sm80"), 20.6);
  EXPECT_EQ(nominal_lane_gb_per_s("sm86"), 12);
  EXPECT_EQ(nominal_lane_gb_per_s("sm90"), 20.6);
  EXPECT_EQ(nominal_lane_gb_per_s("sm103"), 40.1);
  EXPECT_EQ(nominal_lane_gb_per_s("gfx908"), 24);
  EXPECT_EQ(nominal_lane_gb_per_s("gfx942"), 48);
  for (const char* unknown : {"sm35", "sm", "sm9x", "gfx1100", ""})
    EXPECT_EQ(nominal_lane_gb_per_s(unknown), std::nullopt) << unknown;
}

// 0 and 1 have a link; 1 and 2 as well; from 0 to 2 the data must go by PCIe, for GPUs do not pass it on.
TEST(TopologyRoutes, DataDoesNotPassThroughGpus) {
  Graph graph = small_graph();
  graph.nodes.push_back(node_of(NodeKind::gpu, "c", 0, 2));
  graph.edges.push_back(nominal_edge(3, 2, LinkKind::pcie, 12));
  graph.edges.push_back(nominal_edge(1, 0, LinkKind::nvlink, 40, 2));
  graph.edges.push_back(nominal_edge(0, 3, LinkKind::nvlink, 40, 2));
  const Routes routes(graph);
  EXPECT_EQ(link(routes, 0, 1), "NV2 40");
  EXPECT_EQ(link(routes, 0, 2), "PHB 12");
  const Path path = routes.path(1, 3);
  ASSERT_EQ(path.hops.size(), 2u);
  EXPECT_EQ(path.hops[0], (Hop{1, false}));
  EXPECT_EQ(path.hops[1], (Hop{2, true}));
  EXPECT_DOUBLE_EQ(path.latency_us, 1.0);
  EXPECT_TRUE(routes.path(1, 1).hops.empty());
}

TEST(TopologyRoutes, TheWidestPathIsTakenThenTheShortest) {
  Graph graph = small_graph();
  graph.nodes.push_back(node_of(NodeKind::pcie_switch, "switch"));
  graph.edges.push_back(nominal_edge(1, 3, LinkKind::pcie, 24));
  graph.edges.push_back(nominal_edge(3, 0, LinkKind::pcie, 16));
  EXPECT_EQ(link(Routes(graph), 0, 1), "PIX 16");
  graph.edges[2].gb_per_s = 12;  // now as wide as the way by the NUMA node
  graph.edges[2].latency_us = 0.1;
  EXPECT_EQ(link(Routes(graph), 0, 1), "PIX 12");
  graph.edges[2].latency_us = 3;
  EXPECT_EQ(link(Routes(graph), 0, 1), "PHB 12");
}

// CUDA copies between peers over their NVLink; nobody asks whether PCIe were faster.
TEST(TopologyRoutes, NvlinkIsTakenWhereverItIsAndThenTheHostAndThenTheNetwork) {
  Graph graph = small_graph();
  graph.edges[0].gb_per_s = graph.edges[1].gb_per_s = 64;
  graph.edges.push_back(nominal_edge(0, 1, LinkKind::nvlink, 41.2, 2));
  EXPECT_EQ(link(Routes(graph), 0, 1), "NV2 41.2");
  graph.nodes.push_back(node_of(NodeKind::network, "net", -1));
  graph.edges.pop_back();
  graph.edges.push_back(nominal_edge(0, 3, LinkKind::network, 100));
  graph.edges.push_back(nominal_edge(1, 3, LinkKind::network, 100));
  EXPECT_EQ(link(Routes(graph), 0, 1), "PHB 64");
  graph.edges.erase(graph.edges.begin());
  EXPECT_EQ(link(Routes(graph), 0, 1), "NET 100");
}

TEST(TopologyRoutes, NoWayIsNoBandwidth) {
  Graph graph = small_graph();
  graph.edges.pop_back();
  EXPECT_EQ(link(Routes(graph), 0, 1), "none 0");
}

TEST(TopologyRoutes, MeasurementsGoFirstInTheirDirection) {
  Graph graph = small_graph();
  graph.pairs = {{0, 1, 9.5, 3.25}};
  const Routes routes(graph);
  const PairSummary there = routes.summary(0, 1), back = routes.summary(1, 0);
  EXPECT_EQ(there.gb_per_s, 9.5);
  EXPECT_EQ(there.latency_us, 3.25);
  EXPECT_EQ(there.link, "PHB");
  EXPECT_EQ(there.bandwidth_from, Origin::measured);
  EXPECT_EQ(back.gb_per_s, 12);
  EXPECT_EQ(back.bandwidth_from, Origin::nominal);
}

TEST(TopologyRoutes, HostsAreJoinedByTheirRails) {
  const Imported imported = import_topology(fixture("rails_2x4.json"));
  const Routes routes(imported.graph);
  ASSERT_EQ(routes.gpus().size(), 8u);
  EXPECT_EQ(link(routes, 0, 1), "NVS18 393.2");
  EXPECT_EQ(link(routes, 1, 0), "NVS18 370.8");
  EXPECT_EQ(link(routes, 0, 4), "NET 48");  // the same rail
  // Another rail: not by the slow spine but by another GPU's NIC of one of the two hosts.
  EXPECT_EQ(link(routes, 0, 5), "NET 48");
  EXPECT_EQ(routes.summary(routes.gpus()[0], routes.gpus()[4]).latency_from, Origin::nominal);
  EXPECT_EQ(routes.summary(routes.gpus()[0], routes.gpus()[4]).bandwidth_from, Origin::imported);
  for (const Hop& hop : routes.path(routes.gpus()[0], routes.gpus()[5]).hops) {
    const Edge& edge = imported.graph.edges[static_cast<std::size_t>(hop.edge)];
    EXPECT_NE(imported.graph.nodes[static_cast<std::size_t>(edge.b)].name, "spine");
  }
}

TEST(TopologyRoutes, AllAtOnceIsTheSameAsOneByOne) {
  for (const char* name : {"dgx1v.txt", "bridge_pairs.xml", "two_sockets.xml", "nvswitch8.xml", "rails_2x4.json"}) {
    const Routes routes(import_topology(fixture(name)).graph);
    for (int from : routes.gpus()) {
      const std::vector<Path> paths = routes.paths_from(from);
      ASSERT_EQ(paths.size(), routes.gpus().size());
      for (std::size_t i = 0; i < paths.size(); ++i) {
        EXPECT_EQ(paths[i].hops, routes.path(from, routes.gpus()[i]).hops) << name;
        EXPECT_EQ(paths[i].hops.empty(), routes.gpus()[i] == from) << name;
      }
    }
  }
}

// The order in which nodes and edges are listed is nobody's business.
TEST(TopologyRoutes, BandwidthDoesNotDependOnTheOrderOfNodes) {
  for (const char* name : {"dgx1v.txt", "two_sockets.xml", "rails_2x4.json"}) {
    const Graph graph = import_topology(fixture(name)).graph;
    Graph reversed = graph;
    std::reverse(reversed.nodes.begin(), reversed.nodes.end());
    std::reverse(reversed.edges.begin(), reversed.edges.end());
    const int last = static_cast<int>(graph.nodes.size()) - 1;
    for (Edge& edge : reversed.edges) edge.a = last - edge.a, edge.b = last - edge.b;
    for (PairMeasurement& pair : reversed.pairs) pair.from = last - pair.from, pair.to = last - pair.to;
    const Routes one(graph), other(reversed);
    for (int a = 0; a < static_cast<int>(one.gpus().size()); ++a) {
      for (int b = 0; b < static_cast<int>(one.gpus().size()); ++b) EXPECT_EQ(link(one, a, b), link(other, a, b)) << name;
    }
  }
}

TEST(TopologyRoutes, AThousandGpus) {
  Graph graph;
  const auto add = [&](NodeKind kind, const std::string& name, int host, int index) {
    graph.nodes.push_back(node_of(kind, name, host, index));
    return static_cast<int>(graph.nodes.size()) - 1;
  };
  std::vector<int> leaves;
  for (int g = 0; g < 8; ++g) leaves.push_back(add(NodeKind::network, "leaf" + std::to_string(g), -1, -1));
  for (int h = 0; h < 128; ++h) {
    const std::string host = "host" + std::to_string(h) + "/";
    const int nvswitch = add(NodeKind::nvswitch, host + "nvswitch", h, -1), numa = add(NodeKind::numa, host + "numa", h, -1);
    for (int g = 0; g < 8; ++g) {
      const std::string number = std::to_string(g);
      const int gpu = add(NodeKind::gpu, host + "gpu" + number, h, g), nic = add(NodeKind::nic, host + "nic" + number, h, -1);
      const int pcie = add(NodeKind::pcie_switch, host + "switch" + number, h, -1);
      graph.edges.push_back(nominal_edge(gpu, nvswitch, LinkKind::nvlink, 370.8, 18));
      graph.edges.push_back(nominal_edge(gpu, pcie, LinkKind::pcie, 48));
      graph.edges.push_back(nominal_edge(nic, pcie, LinkKind::pcie, 48));
      graph.edges.push_back(nominal_edge(pcie, numa, LinkKind::pcie, 48));
      graph.edges.push_back(nominal_edge(nic, leaves[static_cast<std::size_t>(g)], LinkKind::network, 50));
    }
  }
  const Routes routes(graph);
  ASSERT_EQ(routes.gpus().size(), 1024u);
  const std::vector<Path> paths = routes.paths_from(routes.gpus()[3]);
  EXPECT_EQ(routes.summary(routes.gpus()[3], routes.gpus()[5], paths[5]).link, "NVS18");
  EXPECT_EQ(routes.summary(routes.gpus()[3], routes.gpus()[1019], paths[1019]).link, "NET");
  EXPECT_EQ(paths[1019].hops.size(), 6u);
  for (std::size_t to : {5u, 8u, 12u, 1019u, 1023u}) {
    EXPECT_EQ(routes.path(routes.gpus()[3], routes.gpus()[to]).hops, paths[to].hops) << to;
    EXPECT_EQ(routes.path(routes.gpus()[to], routes.gpus()[3]).hops.size(), paths[to].hops.size()) << to;
  }
  EXPECT_EQ(nvlink_components(graph).size(), 128u);
  EXPECT_EQ(nvlink_cliques(graph).size(), 128u);
}

std::vector<std::string> names(const Graph& graph, const std::vector<std::vector<int>>& groups) {
  std::vector<std::string> texts;
  for (const std::vector<int>& group : groups) {
    std::string text;
    for (int node : group) text += std::to_string(graph.nodes[static_cast<std::size_t>(node)].index);
    texts.push_back(text);
  }
  return texts;
}

TEST(TopologyGraph, ComponentsAndCliques) {
  const Graph cube = import_topology(fixture("dgx1v.txt")).graph;
  EXPECT_THAT(names(cube, nvlink_components(cube)), ElementsAre("01234567"));
  EXPECT_THAT(names(cube, nvlink_cliques(cube)), ElementsAre("0123", "04", "15", "26", "37", "4567"));
  const Graph bridges = import_topology(fixture("bridge_pairs.xml")).graph;
  EXPECT_THAT(names(bridges, nvlink_components(bridges)), ElementsAre("02", "13"));
  EXPECT_THAT(names(bridges, nvlink_cliques(bridges)), ElementsAre("02", "13"));
  const Graph sockets = import_topology(fixture("two_sockets.xml")).graph;
  EXPECT_THAT(names(sockets, nvlink_components(sockets)), ElementsAre("0", "1", "2", "3", "4"));
  EXPECT_TRUE(nvlink_cliques(sockets).empty());
  const Graph full = import_topology(fixture("nvswitch8.xml")).graph;
  EXPECT_THAT(names(full, nvlink_cliques(full)), ElementsAre("01234567"));
}

}  // namespace
}  // namespace plait::topology
