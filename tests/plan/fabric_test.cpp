#include "plan/fabric.h"

#include <gtest/gtest.h>

namespace plait::plan {
namespace {

namespace topology = comm::topology;
using topology::Edge;
using topology::Graph;
using topology::LinkKind;
using topology::Node;
using topology::NodeKind;

// Two sockets with two GPUs each; GPUs 0 and 1 have an NVLink.
Graph two_sockets() {
  Graph g;
  for (int i = 0; i < 4; ++i) g.nodes.push_back({.kind = NodeKind::gpu, .name = "gpu" + std::to_string(i), .index = i, .numa = i / 2});
  for (int n = 0; n < 2; ++n) g.nodes.push_back({.kind = NodeKind::numa, .name = "numa" + std::to_string(n), .numa = n});
  for (int i = 0; i < 4; ++i) g.edges.push_back({.a = i, .b = 4 + i / 2, .kind = LinkKind::pcie, .gb_per_s = 12, .latency_us = 1});
  g.edges.push_back({.a = 4, .b = 5, .kind = LinkKind::smp, .gb_per_s = 8, .latency_us = 2});
  g.edges.push_back({.a = 0, .b = 1, .kind = LinkKind::nvlink, .lanes = 2, .gb_per_s = 40, .latency_us = 0.5});
  return g;
}

TEST(Fabric, AWayIsWhatItCrosses) {
  Fabric fabric(two_sockets());
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
  Fabric fabric(two_sockets());
  EXPECT_EQ(fabric.way(0, 3).channels[1], fabric.way(1, 2).channels[1]);
  EXPECT_NE(fabric.way(0, 3).channels[1], fabric.way(2, 1).channels[1]);
  EXPECT_EQ(fabric.way(0, 1).link, "NV2");
  EXPECT_EQ(fabric.way(0, 1).channels.size(), 1U);
}

TEST(Fabric, AGpuReachesItselfThroughNothing) {
  Fabric fabric(two_sockets());
  EXPECT_TRUE(fabric.way(2, 2).channels.empty());
}

TEST(Fabric, AMeasurementGoesBeforeThePath) {
  Graph graph = two_sockets();
  graph.pairs.push_back({.from = 0, .to = 1, .gb_per_s = 37, .latency_us = 3});
  Fabric fabric(graph);
  EXPECT_EQ(fabric.way(0, 1).gb_per_s, 37);
  EXPECT_EQ(fabric.way(0, 1).bandwidth_from, topology::Origin::measured);
  EXPECT_EQ(fabric.way(1, 0).gb_per_s, 40);
}

}  // namespace
}  // namespace plait::plan
