#include "plan/placement/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "parallel/make_layout.h"
#include "placement_answers.h"
#include "plan/placement/symmetry.h"

namespace plait::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Placement, EightStagesOfADgx1VFollowItsDoubleLinks) {
  topology::Fabric fabric(test::machine("dgx1v.txt"));
  const PlacementResult placed =
      place(fabric, test::traffic(parallel::make_layout(8, 1, 1), {.forward = 0.5, .backward = 0.5}));
  EXPECT_EQ(placed.method, "exact");
  EXPECT_DOUBLE_EQ(test::weakest_of_chain(fabric, placed, 1), 41.2);
  EXPECT_THAT(placed.gpu_of_rank, ElementsAre(0, 3, 2, 1, 5, 6, 7, 4));
  EXPECT_EQ(placed.cost.messages.narrowest.link, "NV2");
  EXPECT_GT(placed.order.seconds, 2 * placed.cost.seconds);
  EXPECT_EQ(placed.order.messages.narrowest.link, "SYS");
}

// Two bridges, 0-2 and 1-3, and four ranks with a data partner and a pipeline partner each: the larger traffic gets the
// bridges.
TEST(Placement, BridgesGoToWhateverSendsMore) {
  topology::Fabric fabric(test::machine("bridge_pairs.xml"));
  const auto bridged = [&](double data, double pipeline) {
    const PlacementResult placed =
        place(fabric, test::traffic(parallel::make_layout(2, 2, 1), {.data = data, .forward = pipeline, .messages = 1e6}));
    const bool of_data = fabric.way(placed.gpu_of_rank[0], placed.gpu_of_rank[1]).link == "NV4";
    const bool of_pipeline = fabric.way(placed.gpu_of_rank[0], placed.gpu_of_rank[2]).link == "NV4";
    EXPECT_NE(of_data, of_pipeline);
    EXPECT_EQ(placed.cost.of(parallel::groups::replicas).narrowest.link, of_data ? "NV4" : "PHB");
    EXPECT_EQ(placed.cost.messages.narrowest.link, of_pipeline ? "NV4" : "PHB");
    return of_data ? "data" : "pipeline";
  };
  EXPECT_STREQ(bridged(1.1, 1), "data");
  EXPECT_STREQ(bridged(1, 1.1), "pipeline");
}

TEST(Placement, TensorGroupsStayInASocketAndAChainCrossesOnce) {
  topology::Fabric fabric(test::machine("pcie_8.txt"));
  const auto numa = [&](const PlacementResult& placed, std::size_t rank) { return fabric.gpu(placed.gpu_of_rank[rank]).numa; };
  const PlacementResult groups =
      place(fabric, test::traffic(parallel::make_layout(2, 1, 4), {.tensor = 4, .forward = 1, .backward = 1}));
  for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(numa(groups, rank), numa(groups, rank / 4 * 4)) << rank;
  const PlacementResult pairs =
      place(fabric, test::traffic(parallel::make_layout(4, 1, 2), {.tensor = 4, .forward = 1, .backward = 1}));
  for (std::size_t rank = 0; rank < 8; rank += 2)
    EXPECT_EQ(fabric.way(pairs.gpu_of_rank[rank], pairs.gpu_of_rank[rank + 1]).link, "PIX");
  const PlacementResult chain = place(fabric, test::traffic(parallel::make_layout(8, 1, 1), {.forward = 1, .backward = 1}));
  int crossings = 0;
  for (std::size_t stage = 0; stage + 1 < 8; ++stage) crossings += numa(chain, stage) != numa(chain, stage + 1);
  EXPECT_EQ(crossings, 1);
}

TEST(Placement, AtAnNvSwitchAllPlacementsTieAndTheAnswerIsTheOrder) {
  topology::Fabric fabric(test::machine("nvswitch8.xml"));
  for (const parallel::Layout& layout : test::layouts_of(8)) {
    PlacementOptions options;
    options.with_worst = true;
    const PlacementResult placed =
        place(fabric, test::traffic(layout, {.tensor = 4, .data = 1, .tied = 0.1, .forward = 1, .backward = 1}), options);
    EXPECT_THAT(placed.gpu_of_rank, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_EQ(placed.worst->cost.seconds, placed.cost.seconds);
    EXPECT_LE(placed.looked_at, 8);  // each rank has one GPU to try
  }
}

struct Answer {
  const char* machine;
  double chain, pairs, both_pairs, both_chain;  // the weakest links in GB/s, computed by hand
};

// NV1 and NV2 of a pasted matrix are 20.6 and 41.2, NV4 82.4; NV4 of sm86 48; 18 lanes of sm90 370.8; PCIe 12, sockets 8.
TEST(Placement, WeakestLinksAreThoseWorkedOutByHand) {
  const std::vector<Answer> answers = {
      {"one_bridge_3.txt", 12, 82.4, 0, 0},
      {"bridge_pairs.xml", 12, 48, 48, 12},
      {"two_sockets.xml", 8, 12, 0, 0},  // five GPUs, three and two
      {"dgx1v.txt", 41.2, 41.2, 41.2, 20.6},
      {"bridges_8.txt", 8, 82.4, 82.4, 8},
      {"pcie_8.txt", 8, 12, 12, 8},
      {"hives_8.txt", 8, 20.6, 20.6, 8},
      {"rings_8.txt", 12, 20.6, 20.6, 12},  // from ring to ring within a socket
      {"nvswitch8.xml", 370.8, 370.8, 370.8, 370.8},
      {"rails_2x4.json", 48, 370.8, 370.8, 48},
  };
  for (const Answer& answer : answers) {
    SCOPED_TRACE(answer.machine);
    topology::Fabric fabric(test::machine(answer.machine));
    EXPECT_NEAR(test::weakest_of_chain(fabric, test::pipeline_chain(fabric), 1), answer.chain, 1e-9);
    EXPECT_NEAR(test::weakest_of_pairs(fabric, test::tensor_pairs(fabric)), answer.pairs, 1e-9);
    if (answer.both_pairs == 0) continue;
    const PlacementResult both = test::tensor2_pipeline(fabric);
    EXPECT_NEAR(test::weakest_of_pairs(fabric, both), answer.both_pairs, 1e-9);
    EXPECT_NEAR(test::weakest_of_chain(fabric, both, 2), answer.both_chain, 1e-9);
  }
}

TEST(Placement, StrategiesForComparisonDoAsTheySay) {
  topology::Fabric fabric(test::machine("dgx1v.txt"));
  const Traffic traffic = test::traffic(parallel::make_layout(8, 1, 1), {.forward = 0.5, .backward = 0.5});
  const auto with = [&](PlacementStrategy strategy, std::vector<int> given = {}) {
    PlacementOptions options;
    options.strategy = strategy;
    options.given = std::move(given);
    return place(fabric, traffic, options);
  };
  const PlacementResult best = with(PlacementStrategy::automatic), order = with(PlacementStrategy::order),
                        worst = with(PlacementStrategy::worst),
                        given = with(PlacementStrategy::given, {7, 6, 5, 4, 3, 2, 1, 0});
  EXPECT_THAT(order.gpu_of_rank, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(order.method, "order");
  EXPECT_EQ(order.cost.seconds, best.order.seconds);
  EXPECT_THAT(given.gpu_of_rank, ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
  EXPECT_EQ(given.method, "explicit");
  EXPECT_EQ(worst.method, "worst, exact");
  EXPECT_LT(best.cost.seconds, order.cost.seconds);
  EXPECT_LT(order.cost.seconds, worst.cost.seconds);
  EXPECT_LE(order.lower_bound, best.cost.seconds);
  EXPECT_GT(order.lower_bound, 0);
}

TEST(Placement, AListThatIsNoPlacementIsRefusedWithAllThatIsWrong) {
  EXPECT_TRUE(problems_of_placement({3, 0}, parallel::make_layout(1, 1, 2), 4).empty());
  EXPECT_THAT(problems_of_placement({0, 4, 0, -1}, parallel::make_layout(1, 1, 2), 4),
              ElementsAre(HasSubstr("names 4 GPUs"), HasSubstr("rank 1 is on GPU 4, which does not exist; GPUs are 0 to 3"),
                          HasSubstr("rank 2 is on GPU 0, where rank 0 is already"), HasSubstr("rank 3 is on GPU -1")));
  topology::Fabric fabric(test::machine("bridge_pairs.xml"));
  PlacementOptions options;
  options.strategy = PlacementStrategy::given;
  options.given = {0, 0};
  try {
    place(fabric, test::traffic(parallel::make_layout(1, 1, 2), {.tensor = 1}), options);
    ADD_FAILURE() << "two ranks on one GPU were placed";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("placement.devices=[...]: rank 1 is on GPU 0, where rank 0 is already"));
  }
  EXPECT_THROW(place(fabric, test::traffic(parallel::make_layout(5, 1, 1), {.forward = 1})), ConfigError);
}

TEST(Placement, WithoutAWayForAllThereIsNoneAndItSaysSo) {
  topology::Graph graph = test::machine("bridges_8.txt");
  std::erase_if(graph.edges, [](const topology::Edge& edge) { return edge.kind == topology::LinkKind::smp; });
  topology::Fabric fabric(graph);
  EXPECT_FALSE(place(fabric, test::traffic(parallel::make_layout(1, 1, 8), {.tensor = 1})).cost.possible());
  const PlacementResult halves = place(fabric, test::traffic(parallel::make_layout(1, 2, 4), {.tensor = 1}));
  EXPECT_TRUE(halves.cost.possible());
  EXPECT_FALSE(halves.order.possible());
}

TEST(Placement, OneRankGoesOnTheFirstGpu) {
  for (const char* name : {"dgx1v.txt", "one_bridge_3.txt"}) {
    topology::Fabric fabric(test::machine(name));
    const PlacementResult placed =
        place(fabric, test::traffic(parallel::make_layout(1, 1, 1), {.tensor = 1, .data = 1, .tied = 1, .forward = 1}));
    EXPECT_THAT(placed.gpu_of_rank, ElementsAre(0));
    EXPECT_EQ(placed.cost.seconds, 0);
    EXPECT_EQ(placed.lower_bound, 0);
  }
}

TEST(Placement, AStoppedSearchKeepsAValidBoundAndAPlacement) {
  std::mt19937 random(23);
  for (int round = 0; round < 6; ++round) {
    topology::Fabric fabric(test::random_machine(random, 8));
    for (const parallel::Layout& layout : test::layouts_of(8)) {
      const Traffic traffic = test::traffic(layout, {.tensor = 4, .data = 1, .tied = 0.2, .forward = 0.5, .backward = 0.5});
      PlacementOptions few;
      few.most_nodes = 20;
      const PlacementResult stopped = place(fabric, traffic, few), exact = place(fabric, traffic);
      ASSERT_EQ(exact.method, "exact");
      EXPECT_LE(stopped.lower_bound, exact.cost.seconds * (1 + 1e-9)) << layout.to_string();
      EXPECT_GE(stopped.cost.seconds, exact.cost.seconds * (1 - 1e-9)) << layout.to_string();
      EXPECT_EQ(stopped.method, stopped.looked_at < 20 ? "exact" : "exact search, stopped");
    }
  }
}

// Every permutation from Symmetry preserves every cost, and any GPUs that it finds alike have a permutation.
TEST(Placement, GpusTakenForAlikeAre) {
  std::mt19937 random(31);
  int alike_pairs = 0;
  for (const std::string& name : test::machines_of_up_to_8()) {
    SCOPED_TRACE(name);
    topology::Fabric fabric(test::machine(name));
    Symmetry symmetry(fabric);
    Rings rings(fabric);
    for (const std::uint32_t fixed : {0U, 1U, 6U}) {
      const Symmetry::Alike& alike = symmetry.alike(fixed);
      for (int gpu = 0; gpu < fabric.gpus(); ++gpu) {
        const int other = alike[static_cast<std::size_t>(gpu)];
        if (other == gpu) continue;
        ++alike_pairs;
        EXPECT_FALSE(fixed >> gpu & 1U);
        const auto permutation = symmetry.permutation(fixed, gpu, other);
        if (!permutation) continue;  // only by several permutations
        EXPECT_EQ((*permutation)[static_cast<std::size_t>(gpu)], other);
        for (const parallel::Layout& layout : test::layouts_of(fabric.gpus())) {
          CostModel model(rings, test::traffic(layout, {.tensor = 3, .data = 2, .tied = 0.5, .forward = 1, .backward = 0.7}));
          std::vector<int> placement(static_cast<std::size_t>(fabric.gpus()));
          std::iota(placement.begin(), placement.end(), 0);
          std::shuffle(placement.begin(), placement.end(), random);
          std::vector<int> moved;
          for (int one : placement) moved.push_back((*permutation)[static_cast<std::size_t>(one)]);
          EXPECT_DOUBLE_EQ(model.seconds(placement), model.seconds(moved));
        }
      }
    }
  }
  EXPECT_GT(alike_pairs, 30);
}

}  // namespace
}  // namespace plait::plan
