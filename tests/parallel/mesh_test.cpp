// The mesh as a list of axes: numbers of ranks, and groups as sets of axes, for axes in any order.
#include "parallel/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/error.h"
#include "parallel/make_layout.h"

namespace plait::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const ModelEnds ends_of_three{0, 2};

// Meshes of the same sizes, slowest axis first, in every order; and ones that lack an axis.
std::vector<Layout> meshes() {
  const MeshAxis p{Axis::pipeline, 3}, d{Axis::data, 2}, t{Axis::tensor, 4};
  return {{p, d, t}, {p, t, d}, {d, p, t}, {d, t, p}, {t, p, d}, {t, d, p}, {p, t}, {t}, {}};
}

TEST(Mesh, NumbersAndCoordinatesAreTheSameThing) {
  for (const Layout& mesh : meshes()) {
    SCOPED_TRACE(mesh.to_string());
    std::set<std::string> places;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const Coordinates c = mesh.coordinates(rank);
      EXPECT_EQ(mesh.rank(c), rank);
      places.insert(to_string(c));
      for (const Axis axis : mesh.axes()) {
        EXPECT_EQ(mesh.coordinate(rank, axis), c[axis]);
        for (int to = 0; to < mesh.size(axis); ++to) {
          Coordinates moved = c;
          moved[axis] = to;
          EXPECT_EQ(mesh.moved(rank, axis, to), mesh.rank(moved));
        }
      }
    }
    EXPECT_EQ(std::ssize(places), mesh.ranks());
  }
}

TEST(Mesh, RanksAlongTheLastAxisAreNeighbours) {
  const Layout mesh{{Axis::tensor, 2}, {Axis::pipeline, 3}};
  EXPECT_EQ(mesh.ranks(), 6);
  EXPECT_EQ(mesh.coordinate(4, Axis::tensor), 1);
  EXPECT_EQ(mesh.coordinate(4, Axis::pipeline), 1);
  EXPECT_EQ(mesh.size(Axis::data), 1) << "an axis that it does not have";
  EXPECT_EQ(mesh.coordinate(4, Axis::data), 0);
  EXPECT_EQ(mesh.to_string(), "tensor 2 × pipeline 3");
  EXPECT_THAT(make_layout(3, 1, 2).members(groups::tensor, 5, ends_of_three), ElementsAre(4, 5));
}

// Groups by their definition, without any arithmetic on numbers.
TEST(Mesh, AGroupIsAllWhoDifferInItsAxesOnly) {
  const std::vector<Group> kinds = {groups::tensor,          groups::replicas, groups::world, Group{{Axis::data, Axis::tensor}},
                                    Group{{Axis::pipeline}}, Group{}};
  for (const Layout& mesh : meshes()) {
    for (const Group& kind : kinds) {
      SCOPED_TRACE(mesh.to_string() + ", " + to_string(kind));
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        std::vector<int> expected;
        for (int other = 0; other < mesh.ranks(); ++other) {
          bool same = true;
          for (const Axis axis : mesh.axes())
            same = same && (kind.axes.contains(axis) || mesh.coordinate(other, axis) == mesh.coordinate(rank, axis));
          if (same) expected.push_back(other);
        }
        EXPECT_EQ(mesh.members(kind, rank, ends_of_three), expected);
        EXPECT_EQ(mesh.lowest_member(kind, rank, ends_of_three), expected.front());
      }
    }
  }
}

TEST(Mesh, TheTiedGroupIsTheModelsEndsAndOthersAreAlone) {
  const Layout mesh = make_layout(3, 2, 1);
  EXPECT_THAT(mesh.members(groups::tied, 1, {0, 2}), ElementsAre(1, 5));
  EXPECT_THAT(mesh.members(groups::tied, 5, {2, 0}), ElementsAre(1, 5)) << "ascending, whichever end comes first";
  EXPECT_THAT(mesh.members(groups::tied, 3, {0, 2}), ElementsAre(3));
  EXPECT_THAT(mesh.members(groups::tied, 3, {1, 1}), ElementsAre(3)) << "both ends on one pipeline rank, as of a V";
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    for (const ModelEnds ends : {ModelEnds{0, 2}, {2, 0}, {1, 1}, {1, 2}})
      EXPECT_EQ(mesh.lowest_member(groups::tied, rank, ends), mesh.members(groups::tied, rank, ends).front());
  }
}

TEST(Mesh, SumsOfAParameterAreGroupsAlongItsAxes) {
  std::map<Axis, Group> along;
  AxisSet::all().for_each([&](Axis axis) { along[axis] = group_along(axis); });
  EXPECT_EQ(along[Axis::data], groups::replicas);
  EXPECT_EQ(along[Axis::tensor], groups::tensor);
  EXPECT_EQ(along[Axis::pipeline], groups::tied);
  EXPECT_EQ(to_string(Group{{Axis::data, Axis::tensor}}), "data, tensor");
  EXPECT_EQ(to_string(groups::world), "world");
}

TEST(Mesh, AnAxisTwiceOrWithoutRanksIsRefused) {
  EXPECT_THROW((Layout{{Axis::data, 2}, {Axis::data, 2}}), InternalError);
  EXPECT_THROW((Layout{{Axis::data, 0}}), InternalError);
  EXPECT_EQ((Layout{{Axis::data, 4}, {Axis::tensor, 2}}.resized(Axis::data, 2)), (Layout{{Axis::data, 2}, {Axis::tensor, 2}}));
}

TEST(Mesh, SizesOfAConfigurationMultiplyToItsRanks) {
  ParallelConfig config;
  config.size = {{Axis::pipeline, 2}, {Axis::tensor, 3}};
  EXPECT_EQ(resolve_layout(config, 12), make_layout(2, 2, 3));
  for (const int ranks : {1, 5, 13}) {
    try {
      resolve_layout(config, ranks);
      ADD_FAILURE() << ranks;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("parallel.tensor=3: tensor 3 × pipeline 2 must divide the number of ranks, " +
                                          std::to_string(ranks) + "; set launch.ranks (or --gpus) to a multiple of 6"));
    }
  }
}

TEST(Mesh, RanksAlongSeveralAxesAreNumberedSlowestFirst) {
  const Layout mesh = make_layout(2, 3, 2);
  const AxisSet along{Axis::pipeline, Axis::tensor};
  EXPECT_EQ(mesh.size(along), 4);
  EXPECT_EQ(mesh.size(AxisSet()), 1);
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(mesh.coordinate(rank, along), 2 * mesh.coordinate(rank, Axis::pipeline) + mesh.coordinate(rank, Axis::tensor));
    const std::vector<int> members = mesh.members({along}, rank, {});
    EXPECT_EQ(members.at(static_cast<std::size_t>(mesh.coordinate(rank, along))), rank);
  }
}

TEST(Mesh, EveryMeshOfSomeRanksIsThereOnce) {
  for (const Axis last : {Axis::data, Axis::tensor}) {
    const std::vector<AxisSizes> meshes = meshes_of(12, last);
    for (std::size_t n = 0; n < meshes.size(); ++n) {
      EXPECT_EQ(product(meshes[n]), 12);
      for (std::size_t m = 0; m < n; ++m) EXPECT_NE(meshes[m], meshes[n]);
    }
    EXPECT_EQ(meshes.size(), 18u);  // 2 × 2 × 3: three places for the 3, six ways to place two 2s
    EXPECT_EQ(meshes.front()[last], 12);
  }
}

}  // namespace
}  // namespace plait::parallel
