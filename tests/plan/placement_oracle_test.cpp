// The search against all possible placements, costed one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parallel/make_layout.h"
#include "placement_machines.h"
#include "plan/placement/search.h"

namespace plait::plan {
namespace {

using test::Amounts;

struct Enumerated {
  double best = std::numeric_limits<double>::infinity();
  double worst = -1;
  std::vector<int> first_best;
};

// Tries every choice of GPUs in every order, without exception.
void try_all(CostModel& model, std::vector<int>& gpu_of_rank, std::vector<bool>& used, std::size_t rank,
             std::vector<std::pair<double, std::vector<int>>>* all, Enumerated& found) {
  if (rank == gpu_of_rank.size()) {
    const double seconds = model.seconds(gpu_of_rank);
    if (seconds < found.best * (1 - 1e-9)) found.best = seconds, found.first_best = gpu_of_rank;
    if (std::isfinite(seconds)) found.worst = std::max(found.worst, seconds);
    if (all) all->push_back({seconds, gpu_of_rank});
    return;
  }
  for (std::size_t gpu = 0; gpu < used.size(); ++gpu) {
    if (used[gpu]) continue;
    used[gpu] = true;
    gpu_of_rank[rank] = static_cast<int>(gpu);
    try_all(model, gpu_of_rank, used, rank + 1, all, found);
    used[gpu] = false;
  }
}

Enumerated try_all(CostModel& model) {
  Enumerated found;
  std::vector<int> gpu_of_rank(static_cast<std::size_t>(model.traffic().layout.ranks()));
  std::vector<bool> used(static_cast<std::size_t>(model.fabric().gpus()), false);
  try_all(model, gpu_of_rank, used, 0, nullptr, found);
  // The lexicographically first of all equally good ones; a later one may be better by a rounding error.
  return found;
}

void expect_no_regret(topology::Fabric& fabric, const Traffic& traffic, bool with_worst = false) {
  SCOPED_TRACE(traffic.layout.to_string());
  Rings rings(fabric);
  CostModel model(rings, traffic);
  const Enumerated oracle = try_all(model);
  PlacementOptions options;
  options.with_worst = with_worst;
  const PlacementResult result = place(fabric, traffic, options);
  EXPECT_EQ(result.method, "exact");
  EXPECT_NEAR(result.cost.seconds, oracle.best, 2e-9 * oracle.best);
  EXPECT_EQ(result.cost.seconds, result.lower_bound);
  EXPECT_EQ(result.gpu_of_rank, oracle.first_best);
  EXPECT_LE(result.cost.seconds, result.order.seconds);
  if (!with_worst) return;
  EXPECT_NEAR(result.worst->cost.seconds, oracle.worst, 2e-9 * oracle.worst);
}

const std::vector<Amounts>& mixes() {
  static const std::vector<Amounts> all = {
      {.tensor = 4, .data = 1, .tied = 0.2, .forward = 0.5, .backward = 0.5},
      {.tensor = 1, .data = 3, .forward = 2, .backward = 2, .messages = 4},
  };
  return all;
}

class PlacementOracle : public testing::TestWithParam<std::string> {};

TEST_P(PlacementOracle, NoPlacementIsCheaperThanTheOneFound) {
  topology::Fabric fabric(test::machine(GetParam()));
  const std::vector<parallel::Layout> layouts = test::layouts_of(fabric.gpus());
  for (std::size_t i = 0; i < layouts.size() * mixes().size(); i += test::thinning)
    expect_no_regret(fabric, test::traffic(layouts[i / mixes().size()], mixes()[i % mixes().size()]));
}

TEST_P(PlacementOracle, SomeGpusMayStayWithoutARank) {
  topology::Fabric fabric(test::machine(GetParam()));
  for (int ranks = 2; ranks < std::min(fabric.gpus(), 6); ++ranks) {
    for (const parallel::Layout& layout : test::layouts_of(ranks))
      expect_no_regret(fabric, test::traffic(layout, mixes()[0]), true);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PlacementOracle, testing::ValuesIn(test::machines_of_up_to_8()), [](const auto& instance) {
  std::string name = instance.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

// Groups over several hosts have as many rings as NICs, shared with others or not.
TEST(PlacementOracleOnSeveralHosts, NoPlacementIsCheaperThanTheOneFound) {
  for (const test::Cluster& cluster : {test::Cluster{.gpus = 3, .nics = 3}, test::Cluster{.gpus = 3, .nics = 2},
                                       test::Cluster{.hosts = 3, .gpus = 2, .nics = 2, .nvlink_gb_per_s = 30}}) {
    topology::Fabric fabric(cluster.graph());
    for (const parallel::Layout& layout : test::layouts_of(6)) {
      for (const Amounts& mix : mixes()) expect_no_regret(fabric, test::traffic(layout, mix), true);
    }
  }
  topology::Fabric fabric(test::Cluster{.nics = 2}.graph());
  for (const parallel::Layout& layout :
       {parallel::make_layout(1, 4, 2), parallel::make_layout(2, 4, 1), parallel::make_layout(2, 1, 4)})
    expect_no_regret(fabric, test::traffic(layout, mixes()[0]));
}

TEST(PlacementOracleOnRandomMachines, NoPlacementIsCheaperThanTheOneFound) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> gb(0.1, 4);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const int gpus = 3 + static_cast<int>(random() % 5),
              ranks = 2 + static_cast<int>(random() % static_cast<unsigned>(gpus - 1));
    topology::Fabric fabric(test::random_machine(random, gpus));
    for (const parallel::Layout& layout : test::layouts_of(ranks)) {
      Traffic traffic = test::traffic(
          layout,
          {.tensor = gb(random), .data = gb(random), .tied = gb(random), .forward = gb(random), .backward = gb(random)});
      // The ends of a pipeline have other amounts than its middle; with virtual stages it is closed to a ring.
      traffic.of(parallel::groups::replicas).front().bytes *= gb(random);
      traffic.of(parallel::groups::tensor).back().bytes *= gb(random);
      if (layout.size(Axis::pipeline) > 2 && round % 2 == 0) {
        traffic.chain.push_back({layout.size(Axis::pipeline) - 1, 0, gb(random) * 1e9, 8});
        traffic.chain.push_back({0, layout.size(Axis::pipeline) - 1, gb(random) * 1e9, 8});
      }
      expect_no_regret(fabric, traffic, ranks < 6);
    }
  }
}

}  // namespace
}  // namespace plait::plan
