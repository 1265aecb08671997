#include "plan/placement/cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "parallel/make_layout.h"
#include "placement_machines.h"

namespace plait::plan {
namespace {

using test::Amounts;

TEST(PlacementCost, ARingTakesItsBytesOverItsNarrowestHopAndALatencyARound) {
  topology::Fabric fabric(test::two_sockets());
  Traffic traffic;
  traffic.layout = parallel::make_layout(1, 1, 4);
  traffic.of(parallel::groups::tensor) = {{2.4e9, 6}};
  const PlacementCost cost = cost_of(fabric, traffic, {0, 1, 2, 3});
  EXPECT_DOUBLE_EQ(cost.of(parallel::groups::tensor).seconds, 2.4 / 8 + 6 * 4e-6);
  EXPECT_EQ(cost.of(parallel::groups::tensor).narrowest.gb_per_s, 8);
  EXPECT_EQ(cost.of(parallel::groups::tensor).narrowest.link, "SYS");
  EXPECT_EQ(cost.of(parallel::groups::tensor).shared_channel, -1);
  EXPECT_DOUBLE_EQ(cost.seconds, cost.of(parallel::groups::tensor).seconds);
}

TEST(PlacementCost, GroupsWhoseRingsMustCrossAChannelShareIt) {
  topology::Fabric fabric(test::two_sockets());
  Traffic traffic;
  traffic.layout = parallel::make_layout(1, 2, 2);
  traffic.of(parallel::groups::tensor) = {{1.2e9, 2}};
  const PlacementCost together = cost_of(fabric, traffic, {0, 1, 2, 3});
  EXPECT_DOUBLE_EQ(together.seconds, 1.2 / 12 + 2 * 2e-6);  // the pair without NVLink
  EXPECT_EQ(together.of(parallel::groups::tensor).narrowest.from, 2);
  const PlacementCost apart = cost_of(fabric, traffic, {0, 2, 1, 3});
  EXPECT_DOUBLE_EQ(apart.seconds, 2 * 1.2 / 8);
  ASSERT_GE(apart.of(parallel::groups::tensor).shared_channel, 0);
  EXPECT_EQ(fabric.channel_name(apart.of(parallel::groups::tensor).shared_channel), "numa0 to numa1, smp");
  EXPECT_EQ(apart.of(parallel::groups::tensor).sharing, 2);
}

TEST(PlacementCost, ARingThatCanGoAnotherWayDoesNotLoadAChannel) {
  topology::Graph graph = test::two_sockets();
  for (const int a : {0, 1})
    graph.edges.push_back(
        {.a = a, .b = a + 2, .kind = topology::LinkKind::nvlink, .lanes = 1, .gb_per_s = 20, .latency_us = 0.5});
  topology::Fabric fabric(graph);
  Rings rings(fabric);
  std::vector<int> all = {3, 1, 0, 2};
  Ring& ring = rings.of(all);
  EXPECT_EQ(all, (std::vector<int>{0, 1, 2, 3}));
  ASSERT_EQ(ring.choices.size(), 1U);
  EXPECT_EQ(ring.choices[0].gb_per_s, 12);  // 2-3 by PCIe, the rest by NVLink
  EXPECT_EQ(rings.order(ring, ring.choices[0]), (std::vector<int>{0, 2, 3, 1}));
  for (const auto& [channel, share] : rings.crossed(ring))
    EXPECT_EQ(fabric.channel_name(channel).find("smp"), std::string::npos);
}

TEST(PlacementCost, RingsTakeTheOrderThatSuitsTheirTraffic) {
  topology::Graph graph = test::two_sockets();
  graph.edges[4].gb_per_s = 100;
  // Wide enough, but slow: 0-1 by NVLink costs 50 us a round.
  graph.edges[5].latency_us = 50;
  topology::Fabric fabric(graph);
  Rings rings(fabric);
  std::vector<int> members = {0, 1, 2};
  Ring& ring = rings.of(members);
  ASSERT_EQ(ring.choices.size(), 1U);  // a ring of three has every pair
  EXPECT_EQ(ring.choices[0].latency_us, 50);
  members = {0, 1, 2, 3};
  Ring& four = rings.of(members);
  ASSERT_EQ(four.choices.size(), 1U);  // 0-2-1-3 is as wide as any other with 2-3 in it, and avoids 0-1
  EXPECT_EQ(four.choices[0].latency_us, 4);
  graph.edges[0].gb_per_s = 11;
  graph.edges[4].gb_per_s = 10;  // 0-1 is now needed for 12, as the other ways have 10
  topology::Fabric narrower(graph);
  Rings others(narrower);
  Ring& both = others.of(members);
  ASSERT_EQ(both.choices.size(), 1U);
  EXPECT_EQ(both.choices[0].gb_per_s, 10);
}

TEST(PlacementCost, WiderOrQuickerIsAChoice) {
  // A ring of wide slow links around a square whose other ways are narrow and quick.
  topology::Graph graph = test::two_sockets();
  graph.edges.pop_back();
  for (int i = 0; i < 4; ++i) {
    const int next = (i + 1) % 4;
    graph.pairs.push_back({.from = i, .to = next, .gb_per_s = 50, .latency_us = 30});
    graph.pairs.push_back({.from = next, .to = i, .gb_per_s = 5, .latency_us = 1});
    if (i < 2)
      graph.pairs.push_back({.from = i, .to = i + 2, .gb_per_s = 5, .latency_us = 1});
    else
      graph.pairs.push_back({.from = i, .to = i - 2, .gb_per_s = 5, .latency_us = 1});
  }
  topology::Fabric fabric(graph);
  Rings rings(fabric);
  std::vector<int> members = {0, 1, 2, 3};
  const Ring& ring = rings.of(members);
  ASSERT_EQ(ring.choices.size(), 2U);
  EXPECT_DOUBLE_EQ(ring_seconds(ring, {1e9, 0}), 1 / 50.0);
  EXPECT_DOUBLE_EQ(ring_seconds(ring, {0, 100}), 100e-6);
  EXPECT_DOUBLE_EQ(ring_seconds(ring, {1e9, 1000}), std::min(1 / 50.0 + 1000 * 30e-6, 1 / 5.0 + 1000 * 1e-6));
}

TEST(PlacementCost, APipelineTakesItsBusiestPairOrChannelAndItsFill) {
  topology::Fabric fabric(test::two_sockets());
  const Traffic traffic = test::traffic(parallel::make_layout(3, 1, 1), {.forward = 1.6, .backward = 0.8, .messages = 4});
  const PlacementCost cost = cost_of(fabric, traffic, {0, 1, 2});
  const double steady = 1.6 / 8;  // 1 to 2
  const double fill = 0.4 / 40 + 0.2 / 40 + 2 * 0.5e-6 + 0.4 / 8 + 0.2 / 8 + 2 * 4e-6;
  EXPECT_DOUBLE_EQ(cost.fill_seconds, fill);
  EXPECT_DOUBLE_EQ(cost.messages.seconds, steady + fill);
  EXPECT_EQ(cost.messages.narrowest.gb_per_s, 8);
  EXPECT_EQ(cost.messages.shared_channel, -1);
  // 0 to 2 and 3 to 1 use both directions of the sockets' link, each for a forward and a backward message.
  const PlacementCost there_and_back =
      cost_of(fabric, test::traffic(parallel::make_layout(4, 1, 1), {.forward = 1, .backward = 1}), {0, 2, 3, 1});
  EXPECT_DOUBLE_EQ(there_and_back.messages.seconds - there_and_back.fill_seconds, 2.0 / 8);
  EXPECT_EQ(there_and_back.messages.sharing, 2);
}

TEST(PlacementCost, CopiesOfThePipelineShareAndTheSlowestFills) {
  topology::Fabric fabric(test::two_sockets());
  const Traffic traffic = test::traffic(parallel::make_layout(2, 2, 1), {.forward = 1, .messages = 1});
  const PlacementCost cost = cost_of(fabric, traffic, {0, 2, 1, 3});
  EXPECT_DOUBLE_EQ(cost.seconds, 1.0 / 12 + 1.0 / 12 + 2e-6);
  EXPECT_DOUBLE_EQ(cost_of(fabric, traffic, {0, 1, 2, 3}).seconds, 2.0 / 8 + 1.0 / 8 + 4e-6);
}

TEST(PlacementCost, DataAndTiedGroupsAreOnesOfTheirOwn) {
  topology::Fabric fabric(test::two_sockets());
  Traffic traffic = test::traffic(parallel::make_layout(2, 2, 1), {.data = 1.2, .tied = 0.4});
  const PlacementCost cost = cost_of(fabric, traffic, {0, 1, 2, 3});
  EXPECT_DOUBLE_EQ(cost.of(parallel::groups::replicas).seconds, 1.2 / 12 + 2 * 2e-6);
  EXPECT_DOUBLE_EQ(cost.of(parallel::groups::tied).seconds, 2 * 0.4 / 8);
  EXPECT_EQ(cost.of(parallel::groups::tied).sharing, 2);
  EXPECT_DOUBLE_EQ(cost.seconds, cost.of(parallel::groups::replicas).seconds + cost.of(parallel::groups::tied).seconds);
  EXPECT_EQ(cost.of(parallel::groups::tensor).narrowest.from, -1);
  EXPECT_EQ(cost.messages.narrowest.from, -1);
}

TEST(PlacementCost, RanksThatCannotReachEachOtherMakeItImpossible) {
  topology::Graph graph = test::two_sockets();
  graph.edges.erase(graph.edges.begin() + 4);
  topology::Fabric fabric(graph);
  const Traffic traffic = test::traffic(parallel::make_layout(1, 1, 2), {.tensor = 1});
  EXPECT_FALSE(cost_of(fabric, traffic, {0, 2}).possible());
  EXPECT_EQ(cost_of(fabric, traffic, {0, 2}).of(parallel::groups::tensor).narrowest.link, "none");
  EXPECT_TRUE(cost_of(fabric, traffic, {3, 2}).possible());
  EXPECT_FALSE(cost_of(fabric, test::traffic(parallel::make_layout(2, 1, 1), {.forward = 1}), {0, 2}).possible());
  EXPECT_TRUE(cost_of(fabric, test::traffic(parallel::make_layout(2, 1, 1), {}), {0, 2}).possible());
}

TEST(PlacementCost, TrafficThatDoesNotFitItsLayoutIsRefused) {
  topology::Fabric fabric(test::two_sockets());
  Traffic traffic = test::traffic(parallel::make_layout(2, 1, 1), {.forward = 1});
  EXPECT_THROW(cost_of(fabric, traffic, {0}), InternalError);
  EXPECT_THROW(cost_of(fabric, traffic, {0, 4}), InternalError);
  traffic.chain[0].to = 2;
  EXPECT_THROW(cost_of(fabric, traffic, {0, 1}), InternalError);
  traffic = test::traffic(parallel::make_layout(2, 1, 1), {.forward = 1});
  traffic.of(parallel::groups::replicas).pop_back();
  EXPECT_THROW(cost_of(fabric, traffic, {0, 1}), InternalError);
  traffic = test::traffic(parallel::make_layout(2, 1, 1), {.forward = std::nan("")});
  traffic.chain = {{0, 1, std::nan(""), 1}};
  EXPECT_THROW(cost_of(fabric, traffic, {0, 1}), InternalError);
}

std::vector<int> random_placement(std::mt19937& random, int gpus, int ranks) {
  std::vector<int> placement(static_cast<std::size_t>(gpus));
  std::iota(placement.begin(), placement.end(), 0);
  std::shuffle(placement.begin(), placement.end(), random);
  placement.resize(static_cast<std::size_t>(ranks));
  return placement;
}

const Amounts everything = {.tensor = 4, .data = 1, .tied = 0.3, .forward = 0.7, .backward = 0.5};

// GPUs get other numbers and other places in the list of nodes.
TEST(PlacementCost, DoesNotDependOnTheNumbersOfGpus) {
  std::mt19937 random(11);
  for (const std::string& name : test::machines_of_up_to_8()) {
    SCOPED_TRACE(name);
    const topology::Graph graph = test::machine(name);
    topology::Fabric fabric(graph);
    Rings rings(fabric);
    for (int round = 0; round < 6; ++round) {
      topology::Graph relabelled = graph;
      std::vector<int> gpus = topology::gpus_of(graph), moved = gpus;
      std::shuffle(moved.begin(), moved.end(), random);
      std::vector<int> node_of(graph.nodes.size());
      std::iota(node_of.begin(), node_of.end(), 0);
      for (std::size_t i = 0; i < gpus.size(); ++i) {
        node_of[static_cast<std::size_t>(gpus[i])] = moved[i];
        relabelled.nodes[static_cast<std::size_t>(moved[i])] = graph.nodes[static_cast<std::size_t>(gpus[i])];
      }
      for (topology::Edge& edge : relabelled.edges)
        edge.a = node_of[static_cast<std::size_t>(edge.a)], edge.b = node_of[static_cast<std::size_t>(edge.b)];
      for (topology::PairMeasurement& pair : relabelled.pairs)
        pair.from = node_of[static_cast<std::size_t>(pair.from)], pair.to = node_of[static_cast<std::size_t>(pair.to)];
      std::vector<int> numbers;
      for (int node : gpus) numbers.push_back(graph.nodes[static_cast<std::size_t>(node)].index);
      // Numbers change only within a host.
      std::vector<int> host_of;
      for (int node : moved) host_of.push_back(relabelled.nodes[static_cast<std::size_t>(node)].host);
      for (int host : std::set<int>(host_of.begin(), host_of.end())) {
        std::vector<int> of_host;
        for (std::size_t i = 0; i < moved.size(); ++i) {
          if (host_of[i] == host) of_host.push_back(static_cast<int>(i));
        }
        std::vector<int> other = of_host;
        std::shuffle(other.begin(), other.end(), random);
        for (std::size_t i = 0; i < other.size(); ++i)
          relabelled.nodes[static_cast<std::size_t>(moved[static_cast<std::size_t>(of_host[i])])].index =
              numbers[static_cast<std::size_t>(other[i])];
      }
      topology::Fabric other(relabelled);
      Rings other_rings(other);
      std::vector<int> number_of(gpus.size());  // by old number
      for (std::size_t i = 0; i < gpus.size(); ++i) {
        for (int gpu = 0; gpu < other.gpus(); ++gpu) {
          if (other.gpu(gpu).name == graph.nodes[static_cast<std::size_t>(gpus[i])].name) number_of[i] = gpu;
        }
      }
      for (const parallel::Layout& layout : test::layouts_of(fabric.gpus())) {
        const Traffic traffic = test::traffic(layout, everything);
        CostModel one(rings, traffic), two(other_rings, traffic);
        const std::vector<int> placement = random_placement(random, fabric.gpus(), layout.ranks());
        std::vector<int> renumbered;
        for (int gpu : placement) renumbered.push_back(number_of[static_cast<std::size_t>(gpu)]);
        EXPECT_DOUBLE_EQ(one.seconds(placement), two.seconds(renumbered)) << layout.to_string();
      }
    }
  }
}

TEST(PlacementCost, MoreBandwidthNeverMakesItHigher) {
  std::mt19937 random(5);
  const auto factor = [&] { return 1 + static_cast<double>(random() % 1000) / 250; };
  std::vector<topology::Graph> machines;
  for (const std::string& name : test::machines_of_up_to_8()) machines.push_back(test::machine(name));
  for (int i = 0; i < 10; ++i) machines.push_back(test::random_machine(random, 8));
  int lower = 0;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    SCOPED_TRACE(m);
    for (int round = 0; round < 12; round += test::thinning > 1 ? 5 : 1) {
      topology::Graph wider = machines[m];
      wider.pairs.clear();
      topology::Fabric before(wider);
      // One edge is widened, or many by different factors.
      const unsigned edges = round % 2 == 0 ? 1 : 1 + static_cast<unsigned>(random() % wider.edges.size());
      for (unsigned i = 0; i < edges; ++i) wider.edges[random() % wider.edges.size()].gb_per_s *= factor();
      topology::Fabric after(wider);
      Rings rings_before(before), rings_after(after);
      for (const parallel::Layout& layout : test::layouts_of(before.gpus())) {
        const Traffic traffic = test::traffic(layout, everything);
        CostModel one(rings_before, traffic), two(rings_after, traffic);
        for (int i = 0; i < 4; ++i) {
          const std::vector<int> placement = random_placement(random, before.gpus(), layout.ranks());
          EXPECT_LE(two.seconds(placement), one.seconds(placement) * (1 + 1e-12)) << layout.to_string();
          lower += two.seconds(placement) < one.seconds(placement);
        }
      }
    }
  }
  EXPECT_GT(lower, 100);
}

}  // namespace
}  // namespace plait::plan
