#include "topology/assumed_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error_of.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using test::fixture;
using test::link;
using testing::HasSubstr;
using testing::IsEmpty;

Graph host(const std::string& name) { return import_topology(fixture(name)).graph; }

std::string refusal(const Graph& graph, const ReplicateRequest& request) {
  return error_of<ConfigError>([&] { return replicate(graph, request); });
}

TEST(TopologyReplicate, OneHostIsTheHostItself) {
  const Graph graph = host("nvswitch8.xml");
  EXPECT_EQ(replicate(graph, {}), graph);
}

TEST(TopologyReplicate, EveryHostIsLikeTheFirstAndOthersAreOverTheNetwork) {
  const Graph one = host("nvswitch8.xml");
  const Graph cluster = replicate(one, {.hosts = 3});
  EXPECT_THAT(problems_of(cluster), IsEmpty());
  const Routes routes(cluster), inside(one);
  ASSERT_EQ(routes.gpus().size(), 24u);
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      EXPECT_EQ(link(routes, a, b), link(inside, a, b));
      EXPECT_EQ(link(routes, 16 + a, 16 + b), link(inside, a, b));
    }
    EXPECT_THAT(link(routes, a, 8 + a), HasSubstr("NET"));
  }
}

TEST(TopologyReplicate, RailsJoinNicsOfOneNumberAndTheSpineTheRails) {
  const Graph cluster = replicate(host("nvswitch8.xml"), {.hosts = 4, .nic_gb_per_s = 50});
  const auto hops = [&](int from, int to) {
    const Routes routes(cluster);
    int count = 0;
    for (const Hop& hop :
         routes.path(routes.gpus()[static_cast<std::size_t>(from)], routes.gpus()[static_cast<std::size_t>(to)]).hops)
      count += cluster.edges[static_cast<std::size_t>(hop.edge)].kind == LinkKind::network;
    return count;
  };
  EXPECT_EQ(hops(0, 8), 2);  // the same rail: one switch
  int rails = 0;
  double spine = 0;
  for (const Edge& edge : cluster.edges) {
    if (edge.kind != LinkKind::network) continue;
    EXPECT_EQ(edge.bandwidth_from, Origin::nominal);
    const Node &a = cluster.nodes[static_cast<std::size_t>(edge.a)], &b = cluster.nodes[static_cast<std::size_t>(edge.b)];
    if (b.name == "spine")
      ++rails, spine = edge.gb_per_s;
    else
      EXPECT_EQ(edge.gb_per_s, 50) << a.name;
  }
  EXPECT_EQ(rails, 8);
  EXPECT_EQ(spine, 200);  // 4 NICs of 50: never narrower than they
}

TEST(TopologyReplicate, PcieOfANicIsAsWideAsItsPortsUnlessAFileSaysOtherwise) {
  Graph graph = host("nvswitch8.xml");
  EXPECT_EQ(link(Routes(replicate(graph, {.hosts = 2})), 0, 8), "NET 50");
  for (Edge& edge : graph.edges) edge.bandwidth_from = Origin::imported;
  EXPECT_EQ(link(Routes(replicate(graph, {.hosts = 2})), 0, 8), "NET 12");
}

TEST(TopologyReplicate, AFlatNetworkIsOneSwitch) {
  const Graph cluster = replicate(host("nvswitch8.xml"), {.hosts = 2, .network = NetworkShape::flat});
  const auto is_network = [](const Node& node) { return node.kind == NodeKind::network; };
  EXPECT_EQ(std::count_if(cluster.nodes.begin(), cluster.nodes.end(), is_network), 1);
  EXPECT_THAT(link(Routes(cluster), 0, 13), HasSubstr("NET"));
}

TEST(TopologyReplicate, AHostWithoutNicsGetsOneBesideEachGpu) {
  const Graph pairs = host("bridge_pairs.xml");
  EXPECT_THAT(refusal(pairs, {.hosts = 2}), HasSubstr("--network-gb-per-s"));
  const Graph cluster = replicate(pairs, {.hosts = 2, .nic_gb_per_s = 25});
  EXPECT_THAT(problems_of(cluster), IsEmpty());
  EXPECT_EQ(
      std::count_if(cluster.nodes.begin(), cluster.nodes.end(), [](const Node& node) { return node.kind == NodeKind::nic; }),
      8);
  EXPECT_EQ(link(Routes(cluster), 0, 4), "NET 25");
}

TEST(TopologyReplicate, NicsAwayFromGpusStayOffTheNetwork) {
  Graph graph = host("nvswitch8.xml");
  Node storage;
  storage.kind = NodeKind::nic;
  storage.name = "storage";
  storage.port_gb_per_s = 12.5;
  graph.nodes.push_back(storage);
  int numa = -1;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    numa = graph.nodes[i].kind == NodeKind::numa ? static_cast<int>(i) : numa;
  Edge edge = graph.edges.front();
  edge.a = static_cast<int>(graph.nodes.size()) - 1;
  edge.b = numa;
  edge.kind = LinkKind::pcie;
  edge.lanes = 0;
  graph.edges.push_back(edge);
  const Graph cluster = replicate(graph, {.hosts = 2});
  for (const Edge& e : cluster.edges) {
    if (e.kind != LinkKind::network) continue;
    EXPECT_EQ(cluster.nodes[static_cast<std::size_t>(e.a)].name.find("storage"), std::string::npos);
  }
}

TEST(TopologyReplicate, WhatWasMeasuredHoldsInEveryHost) {
  Graph graph = host("bridge_pairs.xml");
  const std::vector<int> gpus = gpus_of(graph);
  graph.pairs = {{gpus[0], gpus[1], 77, 3}};
  const Routes routes(replicate(graph, {.hosts = 2, .nic_gb_per_s = 25}));
  EXPECT_EQ(routes.summary(routes.gpus()[4], routes.gpus()[5]).gb_per_s, 77);
  EXPECT_NE(routes.summary(routes.gpus()[5], routes.gpus()[4]).gb_per_s, 77);
}

TEST(TopologyReplicate, WhatIsNoHostIsRefused) {
  EXPECT_THAT(refusal(host("rails_2x4.json"), {.hosts = 2}),
              HasSubstr("--replicate=2: makes copies of one host, and this topology is already of 2 hosts; name a file of one "
                        "of them (--from)"));
  EXPECT_THAT(refusal(host("nvswitch8.xml"), {.hosts = 0}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal(host("nvswitch8.xml"), {.hosts = 1 << 20}), HasSubstr("more nodes or edges"));
  EXPECT_THAT(refusal(host("nvswitch8.xml"), {.hosts = 2, .nic_gb_per_s = -1}), HasSubstr("GB/s"));
  EXPECT_THAT(refusal({}, {.hosts = 2}),
              HasSubstr("--replicate=2: makes copies of a host with GPUs, and this topology has none"));
  Graph taken = host("nvswitch8.xml");
  taken.nodes[0].name = "spine";
  EXPECT_THAT(refusal(taken, {.hosts = 2}), HasSubstr("two nodes are named 'spine'"));
  EXPECT_THROW(network_shape_from("ring", "--network"), ConfigError);
}

TEST(TopologyReplicate, SixteenThousandGpus) {
  const Graph cluster = replicate(host("nvswitch8.xml"), {.hosts = 2048});
  EXPECT_EQ(gpus_of(cluster).size(), 16384u);
  EXPECT_THAT(problems_of(cluster), IsEmpty());
}

}  // namespace
}  // namespace plait::topology
