// Ways between GPUs without peer access to each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/assumed_topology.h"
#include "topology/describe.h"
#include "topology/fabric.h"
#include "topology/graph.h"
#include "topology/topology_json.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using test::link;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// GPUs of one host as `nvidia-smi topo -m` draws them; without access, in both directions, are these pairs.
Graph host(const std::string& matrix, const std::vector<std::pair<int, int>>& without) {
  Graph graph = import_topology(matrix, "text").graph;
  const std::vector<int> gpus = gpus_of(graph);
  std::vector<PeerStatus> peers;
  for (const auto& [a, b] : without) {
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
      PeerStatus peer;
      peer.from = gpus[static_cast<std::size_t>(from)];
      peer.to = gpus[static_cast<std::size_t>(to)];
      peer.access = PeerAccess::no;
      peers.push_back(peer);
    }
  }
  set_access(graph, peers);
  return graph;
}

// By the number of the GPU; -1: by none.
int relay(const Graph& graph, int a, int b) {
  const Routes routes(graph);
  const int by = routes.relay_between(routes.gpus()[static_cast<std::size_t>(a)], routes.gpus()[static_cast<std::size_t>(b)]);
  return by < 0 ? -1 : graph.nodes[static_cast<std::size_t>(by)].index;
}

// GPU1 has one lane to GPU3, GPU2 two to either end.
constexpr const char* two_bridges =
    "     GPU0 GPU1 GPU2 GPU3\nGPU0 X    NV4  NV2  PHB\nGPU1 NV4  X    PHB  NV1\nGPU2 NV2  PHB  X    NV2\nGPU3 PHB  NV1  NV2  "
    "X\n";

TEST(TopologyRelay, IsByTheGpuWithTheWidestWayToBoth) {
  const Graph graph = host(two_bridges, {{0, 3}});
  EXPECT_EQ(relay(graph, 0, 3), 2);
  EXPECT_EQ(relay(graph, 3, 0), 2);
  EXPECT_EQ(relay(graph, 0, 1), -1);
  const Routes routes(graph);
  EXPECT_EQ(link(routes, 0, 3), "relay 41.2");
  EXPECT_EQ(link(routes, 1, 2), "PHB 12");
  EXPECT_EQ(routes.paths_from(routes.gpus()[0])[3].hops, routes.path(routes.gpus()[0], routes.gpus()[3]).hops);
  EXPECT_EQ(routes.direct_path(routes.gpus()[0], routes.gpus()[3]).gb_per_s, 12);
  EXPECT_EQ(link(Routes(host(two_bridges, {})), 0, 3), "PHB 12");
}

TEST(TopologyRelay, ABridgeHasAccessToBothInBothDirections) {
  EXPECT_EQ(relay(host(two_bridges, {{0, 3}, {0, 2}}), 0, 3), 1);
  const Graph none = host(two_bridges, {{0, 3}, {0, 2}, {1, 3}});
  EXPECT_EQ(relay(none, 0, 3), -1);
  EXPECT_EQ(link(Routes(none), 0, 3), "host 12");
  Graph one_way = host(two_bridges, {{0, 3}});
  one_way.no_access.push_back({2, 0});
  std::sort(one_way.no_access.begin(), one_way.no_access.end());
  EXPECT_EQ(relay(one_way, 0, 3), 1);
  // A missing direction between the two is enough to need one.
  one_way.no_access = {{3, 0}};
  EXPECT_EQ(relay(one_way, 0, 3), 2);
}

TEST(TopologyRelay, WhatWasMeasuredBetweenTheEndsAndABridgeCounts) {
  Graph graph = host(two_bridges, {{0, 3}});
  graph.pairs.push_back({.from = 0, .to = 2, .gb_per_s = 3, .latency_us = 2});
  EXPECT_EQ(relay(graph, 0, 3), 1);
}

// The mesh of a DGX-1V, where GPUs without NVLink have no peer access.
TEST(TopologyRelay, BridgesThatAreAlikeShareTheWork) {
  std::vector<std::pair<int, int>> without;
  const Graph dgx = import_topology(test::fixture("dgx1v.txt")).graph;
  const Routes direct(dgx);
  for (int a = 0; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) {
      if (link(direct, a, b).starts_with("SYS")) without.push_back({a, b});
    }
  }
  ASSERT_EQ(without.size(), 12u);
  const Graph graph = host(test::text_of(test::fixture("dgx1v.txt")), without);
  const Routes routes(graph);
  std::map<int, int> used;
  for (const auto& [a, b] : without) {
    ++used[relay(graph, a, b)];
    EXPECT_THAT(link(routes, a, b), testing::StartsWith("relay ")) << a << " " << b;
  }
  EXPECT_EQ(link(routes, 0, 7), "relay 41.2");  // by GPU4, with two lanes to either
  EXPECT_EQ(relay(graph, 0, 7), 4);
  EXPECT_EQ(used.count(-1), 0u);
  // Were the first bridge taken each time, four GPUs would relay for all.
  EXPECT_GE(used.size(), 6u);
  for (const auto& [gpu, pairs] : used) EXPECT_LE(pairs, 3) << gpu;
}

TEST(TopologyRelay, WithoutNvLinkItGoesByPcie) {
  const Graph graph = host("GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X SYS\nGPU2 SYS SYS X\n", {{0, 1}});
  EXPECT_EQ(relay(graph, 0, 1), 2);
  EXPECT_EQ(link(Routes(graph), 0, 1), "relay 8");
}

// Not NVLink, by which they cannot reach each other.
TEST(TopologyRelay, WhereNoneRelaysTheMemoryOfTheHostIsUsed) {
  const Graph joined = host(two_bridges, {});
  const Graph apart = host(two_bridges, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}});
  const Routes with(joined), without(apart);
  EXPECT_EQ(link(with, 0, 1), "NV4 82.4");
  for (const auto& [a, b] : {std::pair{0, 1}, {0, 2}, {1, 0}, {3, 2}}) {
    const Path path = without.path(a, b);
    EXPECT_EQ(path.hops, without.host_path(a, b).hops);
    EXPECT_EQ(path.hops, without.paths_from(a)[static_cast<std::size_t>(b)].hops);
    EXPECT_EQ(path.gb_per_s, 8) << "between NUMA nodes";
    EXPECT_EQ(link(without, a, b), "host 8");
    EXPECT_GE(path.latency_us, host_memory_latency_us);
    bool by_memory = false;
    for (const Hop& hop : path.hops) {
      const Edge& edge = apart.edges[static_cast<std::size_t>(hop.edge)];
      EXPECT_NE(edge.kind, LinkKind::nvlink);
      for (const int node : {edge.a, edge.b})
        by_memory = by_memory || apart.nodes[static_cast<std::size_t>(node)].kind == NodeKind::numa;
    }
    EXPECT_TRUE(by_memory);
  }
  // Wide links do not make it faster than memory was measured to be.
  Graph wide = apart;
  for (Edge& edge : wide.edges) edge.gb_per_s *= 100;
  EXPECT_EQ(Routes(wide).path(0, 1).gb_per_s, host_memory_gb_per_s);
}

TEST(TopologyRelay, AJobsPairsGoThroughHostMemory) {
  Graph graph = host(two_bridges, {});
  graph.host_pairs = {{.a = 0, .b = 1, .collectives = false}, {.a = 2, .b = 3, .collectives = true}};
  graph.pairs.push_back({.from = 0, .to = 1, .gb_per_s = 80, .latency_us = 2});
  Fabric fabric(graph);
  EXPECT_EQ(fabric.way(0, 1).gb_per_s, 80);
  EXPECT_EQ(fabric.message_way(0, 1).gb_per_s, 8);
  EXPECT_EQ(fabric.message_way(1, 0).gb_per_s, 8);
  EXPECT_EQ(fabric.way(2, 3).gb_per_s, 8);
  EXPECT_EQ(fabric.message_way(2, 3).gb_per_s, 8);
  EXPECT_EQ(&fabric.message_way(0, 2), &fabric.message_way(0, 2));
  EXPECT_EQ(fabric.message_way(0, 2).gb_per_s, fabric.way(0, 2).gb_per_s);
  const Graph cluster = replicate(host(two_bridges, {}), {2, NetworkShape::flat, 50});
  Graph unlike = cluster;
  unlike.host_pairs = {{.a = 0, .b = 1}};
  EXPECT_EQ(Fabric(cluster).shapes(), 1);
  EXPECT_EQ(Fabric(unlike).shapes(), 2);
  EXPECT_EQ(part_of(graph, [](const Node& node) { return node.name != "gpu0"; }).host_pairs,
            (std::vector<HostPair>{{.a = 1, .b = 2, .collectives = true}}));
}

TEST(TopologyRelay, IsDrawnBesideWhatConnectsTheTwo) {
  const Graph graph = host(two_bridges, {{0, 3}, {1, 2}});
  Machine machine;
  for (const auto& [from, to] : graph.no_access) {
    PeerStatus peer;
    peer.from = from;
    peer.to = to;
    peer.access = PeerAccess::no;
    machine.peers.push_back(peer);
  }
  const std::string text = describe("here", graph, machine, {});
  EXPECT_THAT(text, HasSubstr("GPU0  X     NV4   NV2   PHB"));
  EXPECT_THAT(text, HasSubstr("relay by GPU2, 41.2 GB/s: GPU0-GPU3"));
  EXPECT_THAT(text, HasSubstr("relay by GPU0, 41.2 GB/s: GPU1-GPU2"));
  EXPECT_EQ(import_topology(to_json_text(graph, machine), "written").graph, graph);
  EXPECT_EQ(import_topology(to_json_text(graph), "written").graph, graph) << "without the machine too";
}

TEST(TopologyRelay, CostsThePlannerBothHalves) {
  Fabric fabric(host(two_bridges, {{0, 3}}));
  const Way& way = fabric.way(0, 3);
  EXPECT_EQ(way.link, "relay");
  EXPECT_EQ(way.gb_per_s, 41.2);
  EXPECT_THAT(way.channels, ElementsAre(fabric.way(0, 2).channels.front(), fabric.way(2, 3).channels.front()));
  EXPECT_EQ(way.latency_us, fabric.way(0, 2).latency_us + fabric.way(2, 3).latency_us);
}

TEST(TopologyRelay, HostsThatAreAlikeRelayAlikeAndOthersDoNot) {
  const Graph relayed = host(two_bridges, {{0, 3}});
  Graph cluster = replicate(relayed, {3, NetworkShape::flat, 50});
  {
    Fabric fabric(cluster);
    EXPECT_EQ(fabric.shapes(), 1);
    EXPECT_EQ(fabric.way(8, 11).link, "relay");
    EXPECT_EQ(fabric.way(8, 11).gb_per_s, 41.2);
    EXPECT_EQ(fabric.way(0, 11).link, "NET");
  }
  std::erase_if(cluster.no_access,
                [&](const auto& pair) { return cluster.nodes[static_cast<std::size_t>(pair.first)].host == 1; });
  Fabric fabric(cluster);
  EXPECT_EQ(fabric.shapes(), 2);
  EXPECT_EQ(fabric.way(4, 7).link, "PHB");
  EXPECT_EQ(fabric.way(8, 11).link, "relay");
  const Graph part = part_of(relayed, [](const Node& node) { return node.name != "gpu1"; });
  EXPECT_EQ(relay(part, 0, 2), 2);
}

TEST(TopologyRelay, PairsWithoutAccessAreOfOneHost) {
  Graph graph = host(two_bridges, {});
  graph.no_access = {{0, 4}};
  EXPECT_THAT(problems_of(graph), ElementsAre(HasSubstr("two GPUs of one host")));
  graph.no_access = {{3, 0}, {0, 3}};
  EXPECT_THAT(problems_of(graph), ElementsAre(HasSubstr("not sorted")));
}

}  // namespace
}  // namespace plait::topology
