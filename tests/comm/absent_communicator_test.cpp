#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/communicator.h"
#include "comm/p2p/mover.h"
#include "core/error.h"

namespace plait::comm {
namespace {

using testing::Each, testing::ElementsAre;

struct Fixture : testing::Test {
  View view(std::vector<float>& values) { return {values.data(), DType::f32, {static_cast<std::int64_t>(values.size())}}; }
  Stream stream{Device{}};
  const std::unique_ptr<Communicator> group = make_absent_communicator(1, 3);
};

using AbsentGroup = Fixture;

TEST_F(AbsentGroup, ItsRankStandsForAll) {
  std::vector<float> part = {1, 2}, all(6), sums = {1, 2, 3, 4, 5, 6}, mine(2);
  group->all_gather(stream, view(part), view(all));
  group->reduce_scatter(stream, view(sums), view(mine), Reduction::sum);
  group->all_reduce(stream, view(sums), Reduction::sum);
  stream.ref().synchronize();
  EXPECT_THAT(all, ElementsAre(1, 2, 1, 2, 1, 2));
  EXPECT_THAT(mine, ElementsAre(3, 4));
  EXPECT_THAT(sums, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(group->size(), 3);
  EXPECT_EQ(group->rank(), 1);
}

// Other tensors have been there since the last time.
TEST_F(AbsentGroup, FreeMemoryIsFilledEveryTime) {
  std::vector<float> part = {1, 2}, all(6);
  for (int time = 0; time < 2; ++time) {
    all.assign(6, std::nanf(""));
    group->all_gather_into_free(stream, view(part), view(all));
    stream.ref().synchronize();
    EXPECT_THAT(all, ElementsAre(1, 2, 1, 2, 1, 2));
  }
}

// Of more ranks than one kernel copies for, in place.
TEST_F(AbsentGroup, ALargeGroupIsFilledToItsEnd) {
  const auto large = make_absent_communicator(2, 3 * p2p::most_copies + 1);
  std::vector<float> all(static_cast<std::size_t>(large->size()));
  all[2] = 5;
  large->all_gather(stream, View(all.data() + 2, DType::f32, {1}), view(all));
  stream.ref().synchronize();
  EXPECT_THAT(all, Each(5));
}

TEST_F(AbsentGroup, ContractsHoldAndNobodyIsThereToTalkTo) {
  std::vector<float> part = {1, 2}, all(5);
  EXPECT_THROW(group->all_gather(stream, view(part), view(all)), InternalError);
  EXPECT_THROW(group->send(stream, view(part), 0), InternalError);
  EXPECT_THROW(group->receive(stream, view(part), 0), InternalError);
}

}  // namespace
}  // namespace plait::comm
