#include "plan/simulation/ring_order.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/simulation_networks.h"

namespace plait::plan {
namespace {

// GB/s of a ring's slowest hop when all hops are on at once.
double rate(const topology::Network& network, const std::vector<int>& gpus, const std::vector<int>& order) {
  std::map<int, int> loads;
  double rate = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const topology::Way way =
          network.way(gpus[static_cast<std::size_t>(order[i])], gpus[static_cast<std::size_t>(order[(i + 1) % order.size()])]);
      if (pass == 1) rate = std::min(rate, way.gb_per_s);
      for (const int c : way.channels) {
        if (pass == 0) ++loads[c];
        if (pass == 1) rate = std::min(rate, network.channels[static_cast<std::size_t>(c)].gb_per_s / loads[c]);
      }
    }
  }
  return rate;
}

// A network with a different width for every pair and some shared channels.
topology::Network random_network(int gpus, std::uint32_t seed) {
  std::mt19937 random(seed);
  topology::Network network;
  for (int c = 0; c < 4; ++c) network.channels.push_back({static_cast<double>(1 + random() % 8)});
  network.host_of.assign(static_cast<std::size_t>(gpus), 0);
  std::vector<topology::Way> ways;
  for (int pair = 0; pair < gpus * gpus; ++pair) {
    topology::Way way;
    way.gb_per_s = static_cast<double>(1 + random() % 8);
    if (random() % 2 == 0) {
      way.channels = {static_cast<int>(random() % 4)};
      way.gb_per_s = std::min(way.gb_per_s, network.channels[static_cast<std::size_t>(way.channels[0])].gb_per_s);
    }
    ways.push_back(way);
  }
  network.way = [ways, gpus](int from, int to) -> const topology::Way& {
    return ways[static_cast<std::size_t>(from * gpus + to)];
  };
  return network;
}

TEST(RingOrders, AreTheBestOfAllOrdersOfASmallGroup) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const int members = 3 + static_cast<int>(seed % 4);
    const topology::Network network = random_network(members, seed);
    const std::vector<int> gpus = in_order(members);
    RingOrders rings(network);
    const std::vector<int> found = rings.order(gpus);
    std::vector<int> order = gpus, best;
    double best_rate = -1;
    do {
      if (const double r = rate(network, gpus, order); order[0] == 0 && r > best_rate) best_rate = r, best = order;
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_EQ(rate(network, gpus, found), best_rate) << seed;
    EXPECT_EQ(found, best) << "of equals the first, seed " << seed;
  }
}

TEST(RingOrders, GoHostByHostInLargeGroups) {
  const topology::Network network = Rails{.hosts = 4, .per_host = 4}.network();
  RingOrders rings(network);
  std::vector<int> gpus;
  for (int i = 0; i < 16; ++i) gpus.push_back(i * 5 % 16);
  std::vector<int> visited;
  for (const int i : rings.order(gpus)) visited.push_back(gpus[static_cast<std::size_t>(i)]);
  EXPECT_EQ(visited, in_order(16));
}

TEST(RingOrders, AreAlikeForGroupsThatAreConnectedAlike) {
  const topology::Network network = Rails{.hosts = 8, .per_host = 4}.network();
  RingOrders rings(network);
  const std::vector<int> first = rings.order({0, 8, 4, 12});
  EXPECT_EQ(first, (std::vector{0, 2, 1, 3}));
  EXPECT_EQ(rings.order({17, 25, 21, 29}), first);
}

// Four rings through two hosts; also with two ranks on one GPU, of which one has no NIC of its own.
TEST(RingOrders, SeveralRingsVisitEachMemberOnce) {
  const topology::Network network = Rails{.hosts = 2, .per_host = 4}.network();
  RingOrders rings(network);
  for (const std::vector<int>& gpus : {std::vector{0, 5, 2, 7, 4, 1, 6, 3}, {3, 2, 1, 0, 4, 5, 6, 7, 0}}) {
    const CollectiveHops hops = rings.hops(gpus);
    EXPECT_EQ(hops.rings, 4);
    std::vector<int> sent(gpus.size()), received(gpus.size());
    int between_hosts = 0;
    for (const RingHop& hop : hops.hops) {
      const int from = gpus[static_cast<std::size_t>(hop.from)], to = gpus[static_cast<std::size_t>(hop.to)];
      sent[static_cast<std::size_t>(hop.from)] += hop.rings;
      received[static_cast<std::size_t>(hop.to)] += hop.rings;
      if (from / 4 == to / 4) continue;
      EXPECT_EQ(hop.rings, 1);
      EXPECT_EQ(from % 4, to % 4) << "on one rail";
      ++between_hosts;
    }
    EXPECT_EQ(between_hosts, 8);
    EXPECT_EQ(sent, std::vector<int>(gpus.size(), 4));
    if (gpus.size() == 8) {
      EXPECT_EQ(received, sent);
    }
  }
}

TEST(RingOrders, OneRingGoesThroughHostsOfWhichOneHasOneMember) {
  const topology::Network network = Rails{.hosts = 2, .per_host = 4}.network();
  RingOrders rings(network);
  const std::vector<int> gpus = {0, 1, 2, 4};
  const CollectiveHops hops = rings.hops(gpus);
  const std::vector<int> order = rings.order(gpus);
  EXPECT_EQ(hops.rings, 1);
  ASSERT_EQ(hops.hops.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(hops.hops[i].from, order[i]);
    EXPECT_EQ(hops.hops[i].to, order[(i + 1) % 4]);
    EXPECT_EQ(hops.hops[i].rings, 1);
  }
}

TEST(RingOrders, OfRanksOnOneGpuHaveNothingInTheWay) {
  const topology::Network network = two_halves(4, 1, 1);
  RingOrders rings(network);
  EXPECT_EQ(rings.order({2, 2, 2}), (std::vector{0, 1, 2}));
  EXPECT_EQ(rings.order({3}), std::vector{0});
}

}  // namespace
}  // namespace plait::plan
