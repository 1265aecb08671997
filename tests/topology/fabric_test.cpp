#include "topology/fabric.h"

#include <gtest/gtest.h>

#include "plan/placement_machines.h"

namespace plait::topology {
namespace {

TEST(Fabric, AWayIsWhatItCrosses) {
  Fabric fabric(plan::test::two_sockets());
  ASSERT_EQ(fabric.gpus(), 4);
  const Way& across = fabric.way(0, 3);
  EXPECT_EQ(across.gb_per_s, 8);
  EXPECT_EQ(across.latency_us, 4);
  ASSERT_EQ(across.channels.size(), 3U);
  EXPECT_EQ(fabric.channel_name(across.channels[1]), "numa0 to numa1, smp");
  EXPECT_EQ(fabric.channel_name(fabric.way(3, 0).channels[1]), "numa1 to numa0, smp");
  EXPECT_EQ(&fabric.way(0, 3), &across);
}

TEST(Fabric, FlowsOfOneDirectionShareAChannelAndOthersDoNot) {
  Fabric fabric(plan::test::two_sockets());
  EXPECT_EQ(fabric.way(0, 3).channels[1], fabric.way(1, 2).channels[1]);
  EXPECT_NE(fabric.way(0, 3).channels[1], fabric.way(2, 1).channels[1]);
  EXPECT_EQ(fabric.way(0, 1).link, "NV2");
  EXPECT_EQ(fabric.way(0, 1).channels.size(), 1U);
}

TEST(Fabric, AGpuReachesItselfThroughNothing) {
  Fabric fabric(plan::test::two_sockets());
  EXPECT_TRUE(fabric.way(2, 2).channels.empty());
}

TEST(Fabric, AMeasurementGoesBeforeThePath) {
  Graph graph = plan::test::two_sockets();
  graph.pairs.push_back({.from = 0, .to = 1, .gb_per_s = 37, .latency_us = 3});
  Fabric fabric(graph);
  EXPECT_EQ(fabric.way(0, 1).gb_per_s, 37);
  EXPECT_EQ(fabric.way(0, 1).bandwidth_from, Origin::measured);
  EXPECT_EQ(fabric.way(1, 0).gb_per_s, 40);
}

// Hosts that are alike share their paths; asking the routes for each pair must give the same.
TEST(Fabric, WaysAreThoseOfTheRoutes) {
  Graph uneven = plan::test::rail_cluster(3);
  for (Edge& edge : uneven.edges) {
    if (edge.gb_per_s == 50 && uneven.nodes[static_cast<std::size_t>(edge.a)].host == 1) edge.gb_per_s = 25;
  }
  Graph joined = plan::test::rail_cluster(3);  // two of the hosts have a link between them that no switch is at
  std::vector<int> numa;
  for (std::size_t i = 0; i < joined.nodes.size(); ++i) {
    if (joined.nodes[i].name == "host0/numa0" || joined.nodes[i].name == "host2/numa0") numa.push_back(static_cast<int>(i));
  }
  joined.edges.push_back(nominal_edge(numa.at(0), numa.at(1), LinkKind::pcie, 20));
  std::vector<Graph> graphs = {plan::test::rail_cluster(3), plan::test::rail_cluster(4, 2), uneven, joined};
  for (const std::string& name : plan::test::machines_of_up_to_8()) graphs.push_back(plan::test::machine(name));
  for (const Graph& graph : graphs) {
    Fabric fabric(graph);
    const Routes routes(graph);
    for (int from = 0; from < fabric.gpus(); ++from) {
      const int node = routes.gpus()[static_cast<std::size_t>(from)];
      const std::vector<Path> paths = routes.paths_from(node);
      for (int to = 0; to < fabric.gpus(); ++to) {
        if (from == to) continue;
        const Path& path = paths[static_cast<std::size_t>(to)];
        const PairSummary summary = routes.summary(node, routes.gpus()[static_cast<std::size_t>(to)], path);
        const Way& way = fabric.way(from, to);
        EXPECT_EQ(way.gb_per_s, summary.gb_per_s);
        EXPECT_DOUBLE_EQ(way.latency_us, summary.latency_us);
        EXPECT_EQ(way.link, summary.link);
        EXPECT_EQ(way.bandwidth_from, summary.bandwidth_from);
        ASSERT_EQ(way.channels.size(), path.hops.size());
        // Not only as wide: a connected path from the one to the other.
        int at = node;
        for (int channel : way.channels) {
          const Edge& edge = graph.edges[static_cast<std::size_t>(channel / 2)];
          ASSERT_EQ(channel % 2 == 0 ? edge.a : edge.b, at);
          at = channel % 2 == 0 ? edge.b : edge.a;
        }
        EXPECT_EQ(at, routes.gpus()[static_cast<std::size_t>(to)]);
      }
    }
  }
}

TEST(Fabric, HostsOfOneShapeAreAlikeInsideAndAttachedToTheSameSwitches) {
  EXPECT_EQ(Fabric(plan::test::rail_cluster(5)).shapes(), 1);
  EXPECT_EQ(Fabric(plan::test::rail_cluster(6, 2)).shapes(), 3);
  Fabric fabric(plan::test::rail_cluster(3));
  EXPECT_EQ(fabric.hosts(), 3);
  EXPECT_EQ(fabric.host_of(9), 1);
  EXPECT_EQ(fabric.first_gpu(2), 16);
  EXPECT_EQ(fabric.first_gpu(3), 24);
}

TEST(Fabric, AMeasurementOfOnePairIsNotTakenForThatOfOthers) {
  Graph graph = plan::test::rail_cluster(3);
  const std::vector<int> gpus = gpus_of(graph);
  graph.pairs.push_back({.from = gpus[0], .to = gpus[8], .gb_per_s = 33, .latency_us = 9});
  Fabric fabric(graph);
  EXPECT_EQ(fabric.way(0, 8).gb_per_s, 33);
  EXPECT_EQ(fabric.way(8, 16).gb_per_s, 48);
  EXPECT_EQ(fabric.way(0, 16).bandwidth_from, Origin::nominal);
}

}  // namespace
}  // namespace plait::topology
