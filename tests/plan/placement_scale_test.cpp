// Placement beyond the reach of the exact search, and against it where both are possible.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <limits>

#include "parallel/make_layout.h"
#include "placement_machines.h"
#include "plan/placement/search.h"

namespace plait::plan {
namespace {

using test::Amounts;

const Amounts amounts = {.tensor = 4, .data = 1, .tied = 0.2, .forward = 0.5, .backward = 0.5};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void expect_each_gpu_once(const PlacementResult& placed, const topology::Fabric& fabric, const parallel::Layout& layout) {
  EXPECT_TRUE(problems_of_placement(placed.gpu_of_rank, layout, fabric.gpus()).empty());
}

void expect_tensor_groups_within_hosts(const PlacementResult& placed, const topology::Fabric& fabric,
                                       const parallel::Layout& layout) {
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const int first = rank / layout.size(Axis::tensor) * layout.size(Axis::tensor);
    ASSERT_EQ(fabric.host_of(placed.gpu_of_rank[static_cast<std::size_t>(rank)]),
              fabric.host_of(placed.gpu_of_rank[static_cast<std::size_t>(first)]))
        << rank;
  }
}

struct Case {
  parallel::Layout layout;
  double factor;  // answer / lower bound, at most
};

TEST(PlacementAtScale, AThousandGpusOnRails) {
  const auto start = std::chrono::steady_clock::now();
  topology::Fabric fabric(test::rail_cluster(128));
  ASSERT_EQ(fabric.gpus(), 1024);
  EXPECT_EQ(fabric.shapes(), 1);
  Placer placer(fabric);
  // The bound does not see that data groups and pipelines both leave the hosts, nor that copies share NICs.
  for (const Case& one : {Case{parallel::make_layout(1, 128, 8), 1.1},
                          {parallel::make_layout(8, 16, 8), 1.6},
                          {parallel::make_layout(4, 64, 4), 1.6},
                          {parallel::make_layout(16, 64, 1), 2.5},
                          {parallel::make_layout(128, 1, 8), 2.3}}) {
    SCOPED_TRACE(one.layout.to_string());
    const auto begin = std::chrono::steady_clock::now();
    const PlacementResult placed = placer.place(test::traffic(one.layout, amounts));
    EXPECT_LT(seconds_since(begin), 5);
    EXPECT_EQ(placed.method, "hierarchical");
    expect_each_gpu_once(placed, fabric, one.layout);
    expect_tensor_groups_within_hosts(placed, fabric, one.layout);
    EXPECT_GT(placed.lower_bound, 0);
    EXPECT_LE(placed.lower_bound, placed.cost.seconds);
    EXPECT_LE(placed.cost.seconds, one.factor * placed.lower_bound);
    EXPECT_LE(placed.cost.seconds, placed.order.seconds);
  }
  EXPECT_LT(seconds_since(start), 20);
  // The last bound is so low because two members of a tensor group in each host, which have a ring each, leave room for four
  // stages there. For this traffic, with few latencies, that is cheaper than one stage in each host.
  const parallel::Layout layout = parallel::make_layout(128, 1, 8);
  PlacementOptions four_stages_a_host;
  four_stages_a_host.strategy = PlacementStrategy::given;
  for (int stage = 0; stage < 128; ++stage) {
    // Back and forth, so that one host's last stage and the next one's first are on one rail.
    const int place = stage / 4 % 2 == 0 ? stage % 4 : 3 - stage % 4;
    for (int t = 0; t < 8; ++t) four_stages_a_host.given.push_back(8 * (stage / 4 * 4 + t / 2) + 2 * place + t % 2);
  }
  const PlacementResult given = placer.place(test::traffic(layout, amounts), four_stages_a_host);
  EXPECT_GE(given.cost.seconds, given.lower_bound);
  EXPECT_LE(given.cost.seconds, 1.1 * given.lower_bound);
}

// Data groups of one GPU a host stay on their rail: the same NIC, one leaf, no spine and no other GPU's PCIe.
TEST(PlacementAtScale, DataGroupsStayOnTheirRail) {
  topology::Fabric fabric(test::rail_cluster(16));
  const parallel::Layout layout = parallel::make_layout(1, 16, 8);
  const PlacementResult placed = place(fabric, test::traffic(layout, amounts));
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    EXPECT_EQ(fabric.gpu(placed.gpu_of_rank[static_cast<std::size_t>(rank)]).index,
              fabric.gpu(placed.gpu_of_rank[static_cast<std::size_t>(rank % layout.size(Axis::tensor))]).index);
  }
  EXPECT_EQ(placed.cost.of(parallel::groups::replicas).shared_channel, -1);
}

TEST(PlacementAtScale, TensorGroupsDoNotStraddleHostsThatTheyDoNotFill) {
  topology::Fabric fabric(test::rail_cluster(16));
  const parallel::Layout layout = parallel::make_layout(2, 16, 3);  // two groups of three in each host, 96 of 128 GPUs
  const PlacementResult placed = place(fabric, test::traffic(layout, amounts));
  expect_each_gpu_once(placed, fabric, layout);
  expect_tensor_groups_within_hosts(placed, fabric, layout);
  EXPECT_LT(placed.cost.of(parallel::groups::tensor).seconds, 0.9 * placed.order.of(parallel::groups::tensor).seconds);
}

// Hosts are numbered across pods alternately; pipelines must not follow these numbers.
TEST(PlacementAtScale, HostsOfOnePodAreNeighbours) {
  topology::Graph graph = test::rail_cluster(16, 8);
  for (topology::Node& node : graph.nodes) {
    if (node.host >= 0) node.host = node.host % 8 * 2 + node.host / 8;
  }
  for (topology::Edge& edge : graph.edges) {
    if (edge.gb_per_s == 400) edge.gb_per_s = 10;  // between pods
  }
  topology::Fabric fabric(graph);
  EXPECT_EQ(fabric.shapes(), 2);
  const PlacementResult chain = place(fabric, test::traffic(parallel::make_layout(16, 1, 8), amounts));
  EXPECT_LT(chain.cost.seconds, 0.8 * chain.order.seconds);
}

TEST(PlacementAtScale, RanksWithinAHostArePlacedForItsLinks) {
  // Four DGX-1V, joined by a NIC at the first socket of each.
  const topology::Graph one = test::machine("dgx1v.txt");
  topology::Graph graph;
  const int network = test::add_node(graph, topology::NodeKind::network, "network", -1);
  for (int host = 0; host < 4; ++host) {
    const int offset = static_cast<int>(graph.nodes.size());
    int numa = -1;
    for (topology::Node node : one.nodes) {
      node.name = std::to_string(host) + node.name;
      node.host = host;
      if (node.kind == topology::NodeKind::numa && numa < 0) numa = static_cast<int>(graph.nodes.size());
      graph.nodes.push_back(node);
    }
    for (topology::Edge edge : one.edges) {
      edge.a += offset, edge.b += offset;
      graph.edges.push_back(edge);
    }
    const int nic = test::add_node(graph, topology::NodeKind::nic, std::to_string(host) + "nic", host);
    graph.edges.push_back(topology::nominal_edge(nic, numa, topology::LinkKind::pcie, 12));
    graph.edges.push_back(topology::nominal_edge(nic, network, topology::LinkKind::network, 12.5));
  }
  topology::Fabric fabric(graph);
  const Traffic traffic = test::traffic(parallel::make_layout(32, 1, 1), {.forward = 1, .backward = 1});
  const PlacementResult placed = place(fabric, traffic);
  int nvlinks = 0;
  for (std::size_t stage = 0; stage + 1 < 32; ++stage)
    nvlinks += fabric.way(placed.gpu_of_rank[stage], placed.gpu_of_rank[stage + 1]).link.starts_with("NV");
  EXPECT_EQ(nvlinks, 4 * 7);
  PlacementOptions cycles;  // of double links, in each host
  cycles.strategy = PlacementStrategy::given;
  for (int host = 0; host < 4; ++host) {
    for (int gpu : {0, 3, 2, 1, 5, 6, 7, 4}) cycles.given.push_back(8 * host + gpu);
  }
  EXPECT_LE(placed.cost.seconds, place(fabric, traffic, cycles).cost.seconds);
  EXPECT_LT(placed.cost.seconds, 0.8 * placed.order.seconds);
}

TEST(PlacementAtScale, HostsWithoutANetworkTakeWhatFitsIntoEach) {
  topology::Graph graph = test::rail_cluster(4);
  std::erase_if(graph.edges, [](const topology::Edge& edge) { return edge.kind == topology::LinkKind::network; });
  topology::Fabric fabric(graph);
  const parallel::Layout layout = parallel::make_layout(1, 4, 8);
  const PlacementResult placed = place(fabric, test::traffic(layout, {.tensor = 1}));
  ASSERT_TRUE(placed.cost.possible());
  expect_tensor_groups_within_hosts(placed, fabric, layout);
  EXPECT_NEAR(placed.lower_bound, placed.cost.seconds, 1e-9);
  const PlacementResult none = place(fabric, test::traffic(parallel::make_layout(1, 1, 16), {.tensor = 1}));
  EXPECT_FALSE(none.cost.possible());
  EXPECT_EQ(none.lower_bound, std::numeric_limits<double>::infinity());
}

TEST(PlacementAtScale, TheHierarchyIsCloseToTheExactSearch) {
  std::mt19937 random(17);
  double sum = 0, most = 0;
  int count = 0;
  for (int round = 0; round < 8 / test::thinning; ++round) {
    const int gpus = 8 + static_cast<int>(random() % 5), ranks = gpus == 11 ? 10 : gpus;
    topology::Fabric fabric(test::random_machine(random, gpus));
    Placer placer(fabric);
    const std::vector<parallel::Layout> layouts = test::layouts_of(ranks);
    for (std::size_t i = static_cast<std::size_t>(round) % 3; i < layouts.size(); i += 3) {
      const Traffic traffic = test::traffic(layouts[i], amounts);
      PlacementOptions by_levels;
      by_levels.exact_up_to_gpus = 0;
      const PlacementResult exact = placer.place(traffic), hierarchical = placer.place(traffic, by_levels);
      if (exact.method != "exact") continue;
      EXPECT_EQ(hierarchical.method, "hierarchical");
      const double regret = hierarchical.cost.seconds / exact.cost.seconds - 1;
      EXPECT_GE(regret, -1e-8) << layouts[i].to_string();
      EXPECT_LE(hierarchical.lower_bound, exact.cost.seconds * (1 + 1e-9)) << layouts[i].to_string();
      sum += regret;
      most = std::max(most, regret);
      ++count;
    }
  }
  ASSERT_GT(count, 20 / test::thinning);
  std::cout << count << " layouts: mean regret " << sum / count << ", at most " << most << "\n";
  EXPECT_LT(sum / count, 0.04);
  EXPECT_LT(most, 0.35);
}

TEST(PlacementAtScale, TheBoundHoldsOnEveryFixture) {
  for (const std::string& name : test::machines_of_up_to_8()) {
    topology::Fabric fabric(test::machine(name));
    Placer placer(fabric);
    for (int ranks = 2; ranks <= fabric.gpus(); ranks += 2) {
      for (const parallel::Layout& layout : test::layouts_of(ranks)) {
        const Traffic traffic = test::traffic(layout, amounts);
        PlacementOptions order;
        order.strategy = PlacementStrategy::order;
        const PlacementResult exact = placer.place(traffic);
        ASSERT_EQ(exact.method, "exact");
        EXPECT_LE(placer.place(traffic, order).lower_bound, exact.cost.seconds * (1 + 1e-9))
            << name << ", " << layout.to_string();
      }
    }
  }
}

}  // namespace
}  // namespace plait::plan
