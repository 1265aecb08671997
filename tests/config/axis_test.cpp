#include "core/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "config/config.h"
#include "core/batch_split.h"

namespace plait {
namespace {

using testing::ElementsAre;

TEST(Axis, EachHasOneRowWithNamesOfItsOwn) {
  std::set<Axis> axes;
  std::set<std::string_view> names_of_axes;
  for (const AxisRow& row : axis_table) {
    axes.insert(row.axis);
    names_of_axes.insert(row.name);
    EXPECT_EQ(&row_of(row.axis), &row);
    EXPECT_EQ(to_string(row.axis), row.name);
  }
  EXPECT_EQ(std::ssize(axes), axis_count);
  EXPECT_EQ(std::ssize(names_of_axes), axis_count);
}

TEST(Axis, ParametersAreReplicatedAlongWhatDoesNotDivideThem) {
  AxisSet::all().for_each([](Axis axis) {
    const Splits splits = row_of(axis).splits;
    EXPECT_EQ(replica_axes.contains(axis), splits != Splits::layers && splits != Splits::segments) << to_string(axis);
    EXPECT_NE(replica_axes.contains(axis), model_axes.contains(axis)) << to_string(axis);
  });
  EXPECT_TRUE(batch_axes.without(replica_axes).empty()) << "ranks that see other sequences hold the same parameters";
}

TEST(Axis, KeysAreInTheOrderOfTheTable) {
  EXPECT_THAT(axis_keys(AxisSet{Axis::pipeline, Axis::data}), ElementsAre("parallel.data", "parallel.pipeline"));
  EXPECT_EQ(axis_product(model_axes), "parallel.tensor * parallel.pipeline");
  EXPECT_THAT(axes_by_traffic, ElementsAre(Axis::tensor, Axis::pipeline, Axis::data));
}

TEST(Axis, TheRestOfTheRanksGoesToTheAxisThatTakesIt) {
  const AxisSizes open{{Axis::tensor, 2}, {Axis::pipeline, 3}};
  EXPECT_EQ(with_rest(open, 24)[Axis::data], 4);
  EXPECT_EQ(with_rest(open, 25), open) << "they do not divide the ranks";
  EXPECT_EQ(with_rest({{Axis::tensor, 2}}, 24), (AxisSizes{{Axis::tensor, 2}})) << "the pipeline is not known";
  const AxisSizes given{{Axis::data, 5}, {Axis::tensor, 2}, {Axis::pipeline, 3}};
  EXPECT_EQ(with_rest(given, 24), given);
}

TEST(Axis, AConfigurationThatSaysNothingHasTheUsualSizes) {
  AxisSet::all().for_each(
      [](Axis axis) { EXPECT_EQ(Config().parallel.size[axis].given(), row_of(axis).usual) << to_string(axis); });
}

TEST(BatchSplit, MicroBatchesAreThoseOfOneRankAlongTheAxesThatDivideTheBatch) {
  Config config;
  config.train.global_batch = 24, config.train.micro_batch = 2;
  AxisSizes sizes = single_rank;
  AxisSet::all().for_each([&](Axis axis) {
    sizes = single_rank;
    sizes[axis] = 3;
    const BatchSplit split = batch_split(config, sizes);
    EXPECT_EQ(split.micro_batches(), batch_axes.contains(axis) ? 4 : 12) << to_string(axis);
    EXPECT_EQ(split.round() * split.micro_batches(), 24) << to_string(axis);
    EXPECT_TRUE(split.is_whole());
  });
}

TEST(BatchSplit, OnlyWholeMicroBatchesOfKnownRanksAreWhole) {
  EXPECT_FALSE((BatchSplit{25, 2, 3}).is_whole());
  EXPECT_FALSE((BatchSplit{24, 2, 5}).is_whole());
  EXPECT_FALSE((BatchSplit{24, 2, 0}).is_whole());
  EXPECT_EQ((BatchSplit{24, 2, 0}).micro_batches(), 0);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_FALSE((BatchSplit{24, most, most}).is_whole()) << "without their product";
}

}  // namespace
}  // namespace plait
