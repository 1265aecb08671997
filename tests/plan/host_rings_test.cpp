// Several rings for one collective, over hosts with several NICs: placement costs and simulated times.
#include "topology/host_rings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parallel/collectives.h"
#include "parallel/make_layout.h"
#include "plan/placement/cost.h"
#include "plan/placement/lower_bound.h"
#include "plan/placement/search.h"
#include "plan/placement_machines.h"
#include "plan/simulation/simulator.h"
#include "plan/simulation_networks.h"

namespace plait::plan {
namespace {

using test::Cluster;

constexpr double latency_us = Cluster::latency_us;

// All-reduces of 8 GB in all data groups at once, as rings.
constexpr double tensor_gb = 8;
Traffic all_reduces(const parallel::Layout& layout) {
  return test::traffic(layout, {.data = 2.0 * (layout.size(Axis::data) - 1) / layout.size(Axis::data) * tensor_gb});
}

// Seconds of one step that does nothing else, with the latencies of all rounds as in the placement cost.
double simulated(topology::Fabric& fabric, const Traffic& traffic, const std::vector<int>& gpus, double hop_latency_us) {
  using parallel::InstructionKind;
  using parallel::StreamRole;
  parallel::ProgramSet set;
  set.layout = traffic.layout;
  parallel::Program program;
  program.streams = {{StreamRole::compute, -1}, {StreamRole::reduce, -1}};
  program.instructions = {{.kind = InstructionKind::forward, .stream = 0},
                          {.kind = InstructionKind::collective,
                           .stream = 1,
                           .collective = parallel::scalar_sum(parallel::groups::replicas),
                           .waits = {0}},
                          {.kind = InstructionKind::update, .stream = 0, .waits = {1}}};
  set.programs.push_back({program, {}});
  set.program_of.assign(static_cast<std::size_t>(set.layout.ranks()), 0);
  const Work work{.seconds = traffic.of(parallel::groups::replicas)[0].rounds * hop_latency_us * 1e-6,
                  .bytes = traffic.of(parallel::groups::replicas)[0].bytes};
  const auto work_of = [&](int, int index) { return index == 1 ? work : Work{}; };
  const Simulated merged = simulate_step(set, work_of, topology::network_of(fabric), gpus);
  const Simulated each = simulate_step(set, work_of, topology::network_of(fabric), gpus, {.merge_equal_ranks = false});
  EXPECT_EQ(merged.step_seconds, each.step_seconds);
  return merged.step_seconds;
}

// The placement cost of an all-reduce over all GPUs; the simulator must agree.
double all_reduce_seconds(const topology::Graph& graph) {
  topology::Fabric fabric(graph);
  const Traffic traffic = all_reduces(parallel::make_layout(1, fabric.gpus(), 1));
  const std::vector<int> gpus = in_order(fabric.gpus());
  Rings rings(fabric);
  CostModel model(rings, traffic);
  const double seconds = model.seconds(gpus);
  std::vector<int> members = gpus;
  EXPECT_NEAR(simulated(fabric, traffic, gpus, rings.of(members).choices.front().latency_us), seconds, 1e-12 * seconds);
  EXPECT_LE(placement_lower_bound(model), seconds * (1 + 1e-12));
  return seconds;
}

double all_reduce_seconds(const Cluster& cluster) { return all_reduce_seconds(cluster.graph()); }

// A way from GPU to GPU on a rail: PCIe, PCIe, network, and the same again.
double seconds_at(double gb_per_s, int members) {
  return 2.0 * (members - 1) / members * tensor_gb / gb_per_s + 2 * (members - 1) * 6 * latency_us * 1e-6;
}

TEST(HostRings, FourNicsCarryFourTimesWhatOneDoes) {
  EXPECT_NEAR(all_reduce_seconds({.nics = 4}), seconds_at(4 * 25, 8), 1e-12);
  EXPECT_NEAR(all_reduce_seconds({.nics = 1}), seconds_at(25, 8), 1e-12);
}

TEST(HostRings, TwoGpusThatShareANicAreOneRing) {
  EXPECT_NEAR(all_reduce_seconds({.nics = 2}), seconds_at(2 * 25, 8), 1e-12);
  topology::Fabric fabric(Cluster{.nics = 2}.graph());
  const topology::Network network = topology::network_of(fabric);
  EXPECT_EQ(topology::host_rings(network, in_order(8)).rings, 2);
  EXPECT_EQ(topology::host_rings(network, {0, 1, 4, 5}).rings, 1);  // by one NIC
  EXPECT_EQ(topology::host_rings(network, {0, 2, 4, 6}).rings, 2);
  EXPECT_EQ(topology::host_rings(network, {0, 2, 4}).rings, 1);     // one member there
  EXPECT_EQ(topology::host_rings(network, {0, 1, 2, 3}).rings, 1);  // one host
  EXPECT_EQ(topology::host_rings(network, {0, 4}).rings, 1);
}

TEST(HostRings, EachLeavesAndEntersEveryHostByANicOfItsOwn) {
  topology::Fabric fabric(Cluster{.hosts = 3, .gpus = 8, .nics = 4}.graph());
  const topology::HostRings across = topology::host_rings(topology::network_of(fabric), in_order(24));
  ASSERT_EQ(across.rings, 4);
  ASSERT_EQ(across.hops.size(), 3U);
  EXPECT_EQ(fabric.channel_name(fabric.way(2, 10).exit_channel), "host0/nic1 to rail1, network");
  EXPECT_EQ(fabric.channel_name(fabric.way(2, 10).entry_channel), "rail1 to host1/nic1, network");
  EXPECT_EQ(fabric.way(2, 3).exit_channel, -1);
  for (const std::vector<topology::HostHop>& hops : across.hops) {
    std::set<int> exits, entries;
    for (const topology::HostHop& hop : hops) {
      const topology::Way& way = fabric.way(hop.from, hop.to);
      exits.insert(way.exit_channel);
      entries.insert(way.entry_channel);
      EXPECT_EQ(fabric.gpu(hop.from).index / 2, fabric.gpu(hop.to).index / 2) << "on one rail";
    }
    EXPECT_EQ(exits.size(), 4U);
    EXPECT_EQ(entries.size(), 4U);
  }
}

// Each of eight rings goes from seven of the eight members of a host to the next: all together send 7/8 of their bytes there.
TEST(HostRings, AreAsFastAsRailsOrTheSwitchWithinHosts) {
  EXPECT_NEAR(all_reduce_seconds({.gpus = 8, .nics = 8}), seconds_at(8 * 25, 16), 1e-12);
  EXPECT_NEAR(all_reduce_seconds({.gpus = 8, .nics = 8, .nic_gb_per_s = 50}), seconds_at(300 * 8 / 7.0, 16), 1e-12);
  EXPECT_NEAR(all_reduce_seconds({.hosts = 4, .gpus = 8, .nics = 8}), seconds_at(8 * 25, 32), 1e-12);
}

// Without NVLink, the bytes to the next member (3/4) and to the NIC (1/4) share a GPU's PCIe link.
TEST(HostRings, ShareTheLinksOfTheirMembers) {
  topology::Graph graph = Cluster{.nics = 4, .nic_gb_per_s = 60}.graph();
  std::erase_if(graph.edges, [](const topology::Edge& edge) { return edge.kind == topology::LinkKind::nvlink; });
  for (int host = 0; host < 2; ++host) {
    const int numa = test::add_node(graph, topology::NodeKind::numa, "numa" + std::to_string(host), host, -1, 0);
    for (int node = 0; node < numa; ++node) {
      if (graph.nodes[static_cast<std::size_t>(node)].kind != topology::NodeKind::pcie_switch ||
          graph.nodes[static_cast<std::size_t>(node)].host != host)
        continue;
      graph.edges.push_back(
          {.a = node, .b = numa, .kind = topology::LinkKind::pcie, .gb_per_s = 100, .latency_us = latency_us});
    }
  }
  EXPECT_NEAR(all_reduce_seconds(graph), seconds_at(100, 8), 1e-12);
}

TEST(HostRings, OfGroupsThatUseTheSameNicsShareThem) {
  const parallel::Layout layout = parallel::make_layout(1, 4, 2);
  const Traffic traffic = all_reduces(layout);
  const double bytes = traffic.of(parallel::groups::replicas)[0].bytes, latencies = 6 * 6 * latency_us * 1e-6;
  const std::vector<int> apart = {0, 2, 1, 3, 4, 6, 5, 7};     // groups {0, 1, 4, 5} and {2, 3, 6, 7}: a NIC each
  const std::vector<int> together = {0, 1, 2, 3, 4, 5, 6, 7};  // groups {0, 2, 4, 6} and {1, 3, 5, 7}: both NICs
  topology::Fabric two(Cluster{.nics = 2}.graph()), four(Cluster{.nics = 4}.graph());
  const PlacementCost one_each = cost_of(two, traffic, apart), both = cost_of(two, traffic, together);
  EXPECT_NEAR(one_each.seconds, bytes / 25e9 + latencies, 1e-12);
  EXPECT_EQ(one_each.of(parallel::groups::replicas).shared_channel, -1);
  EXPECT_NEAR(both.seconds, 2 * bytes / 50e9, 1e-12);
  EXPECT_GE(both.of(parallel::groups::replicas).shared_channel, 0);
  EXPECT_EQ(both.of(parallel::groups::replicas).sharing, 2);
  EXPECT_NEAR(simulated(two, traffic, apart, 6 * latency_us), one_each.seconds, 1e-12);
  EXPECT_NEAR(simulated(two, traffic, together, 0), both.seconds, 1e-12);
  EXPECT_NEAR(cost_of(four, traffic, together).seconds, bytes / 50e9 + latencies, 1e-12);
  EXPECT_NEAR(simulated(four, traffic, together, 6 * latency_us), bytes / 50e9 + latencies, 1e-12);
}

// The GPUs of a host are renumbered.
TEST(HostRings, DoNotDependOnTheNumbersOfGpus) {
  std::mt19937 random(3);
  for (const int nics : {2, 4}) {
    const topology::Graph graph = Cluster{.nics = nics}.graph();
    topology::Fabric fabric(graph);
    for (int round = 0; round < 20; ++round) {
      topology::Graph renumbered = graph;
      for (int host = 0; host < 2; ++host) {
        std::vector<int> numbers = in_order(4);
        std::shuffle(numbers.begin(), numbers.end(), random);
        for (topology::Node& node : renumbered.nodes) {
          if (node.kind == topology::NodeKind::gpu && node.host == host)
            node.index = numbers[static_cast<std::size_t>(node.index)];
        }
      }
      topology::Fabric other(renumbered);
      std::vector<int> number_of;  // by old number
      for (int gpu = 0; gpu < 8; ++gpu) {
        int now = 0;
        while (other.gpu(now).name != fabric.gpu(gpu).name) ++now;
        number_of.push_back(now);
      }
      for (const parallel::Layout& layout : test::layouts_of(8)) {
        const Traffic traffic = test::traffic(layout, {.tensor = 4, .data = 1, .tied = 0.3, .forward = 0.7, .backward = 0.5});
        std::vector<int> placement = in_order(8), moved;
        std::shuffle(placement.begin(), placement.end(), random);
        for (int gpu : placement) moved.push_back(number_of[static_cast<std::size_t>(gpu)]);
        EXPECT_DOUBLE_EQ(cost_of(fabric, traffic, placement).seconds, cost_of(other, traffic, moved).seconds)
            << layout.to_string();
      }
    }
  }
}

TEST(HostRings, GetNoSlowerByBandwidth) {
  std::mt19937 random(17);
  int faster = 0;
  for (int round = 0; round < 300; ++round) {
    const Cluster cluster{.hosts = 2 + round % 2, .nics = round % 4 < 2 ? 2 : 4, .nic_gb_per_s = round % 3 == 0 ? 100.0 : 25.0};
    topology::Graph graph = cluster.graph();
    topology::Fabric before(graph);
    for (topology::Edge& edge : graph.edges) {
      if (random() % 4 == 0) edge.gb_per_s *= 1 + static_cast<double>(random() % 100) / 200;
    }
    topology::Fabric after(graph);
    // The cost must not rise as long as routes stay.
    bool same_routes = true;
    for (int from = 0; from < before.gpus(); ++from) {
      for (int to = 0; to < before.gpus(); ++to)
        same_routes = same_routes && before.way(from, to).channels == after.way(from, to).channels;
    }
    if (!same_routes) continue;
    for (const parallel::Layout& layout : test::layouts_of(before.gpus())) {
      const Traffic traffic = test::traffic(layout, {.tensor = 4, .data = 1, .tied = 0.3});
      std::vector<int> placement = in_order(before.gpus());
      std::shuffle(placement.begin(), placement.end(), random);
      const double one = cost_of(before, traffic, placement).seconds, two = cost_of(after, traffic, placement).seconds;
      EXPECT_LE(two, one * (1 + 1e-12)) << layout.to_string();
      faster += two < one;
    }
  }
  EXPECT_GT(faster, 60);
}

// No placement is cheaper than the bound: neither random ones nor the one found.
TEST(HostRings, StayAboveTheLowerBound) {
  std::mt19937 random(23);
  for (const Cluster& cluster : {Cluster{}, Cluster{.nics = 2}, Cluster{.nics = 1}, Cluster{.nic_gb_per_s = 200},
                                 Cluster{.nvlink_gb_per_s = 60, .nic_gb_per_s = 90}}) {
    topology::Fabric fabric(cluster.graph());
    for (const parallel::Layout& layout : test::layouts_of(8)) {
      SCOPED_TRACE(layout.to_string());
      const Traffic traffic = test::traffic(layout, {.tensor = 4, .data = 3, .tied = 0.3, .forward = 0.7, .backward = 0.5});
      Rings rings(fabric);
      CostModel model(rings, traffic);
      const double bound = placement_lower_bound(model);
      EXPECT_GT(bound, 0);
      std::vector<int> placement = in_order(8);
      for (int i = 0; i < 200; ++i) {
        std::shuffle(placement.begin(), placement.end(), random);
        ASSERT_LE(bound, model.seconds(placement) * (1 + 1e-12));
      }
      EXPECT_LE(bound, place(fabric, traffic).cost.seconds * (1 + 1e-12));
    }
  }
}

}  // namespace
}  // namespace plait::plan
