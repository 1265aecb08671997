#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collective_check.h"
#include "core/error.h"
#include "rank_threads.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Each;
using testing::IsEmpty;

// Runs `body` on every rank of one host group.
std::vector<std::string> on_host_group(int size, const std::function<void(Communicator&)>& body,
                                       milliseconds timeout = seconds(60)) {
  const auto store = make_thread_rendezvous();
  return outcome_of_ranks(size, [&](int rank) {
    const auto communicator = make_communicator(host_group(rank, size, timeout), *store);
    body(*communicator);
  });
}

class GlooCommunicatorOfSize : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GlooCommunicatorOfSize, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST_P(GlooCommunicatorOfSize, KnowsItsPlace) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(GetParam(), [&](int rank) {
    const auto communicator = make_communicator(host_group(rank, GetParam()), *store);
    EXPECT_EQ(communicator->rank(), rank);
    EXPECT_EQ(communicator->size(), GetParam());
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooCommunicatorOfSize, EveryOperationTypeAndOddCount) {
  const auto outcome = on_host_group(GetParam(), [](Communicator& communicator) {
    CollectiveCheck check(communicator, {}, 1031, 1);
    check.every_operation({0, 1, 2, 3, 5, 17, 1031}, {DType::f32, DType::f64, DType::bf16, DType::i32, DType::u8});
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooCommunicatorOfSize, ThousandsOfRandomCalls) {
  const auto outcome = on_host_group(GetParam(), [](Communicator& communicator) {
    CollectiveCheck check(communicator, {}, 97, 2);
    for (std::uint64_t call = 0; call < 2000; ++call) check.random_call(call);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooCommunicatorOfSize, LargeMessages) {
  const auto outcome = on_host_group(GetParam(), [](Communicator& communicator) {
    CollectiveCheck check(communicator, {}, 60'007, 3);
    check.all_reduce(DType::f32, 60'007, Reduction::sum);
    check.reduce_scatter(DType::f64, 40'003, Reduction::sum, false);
    check.all_gather(DType::bf16, 60'007, true);
    check.all_to_all(DType::i32, 20'011);
    check.all_gather(DType::u8, 60'007, false);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooCommunicatorOfSize, CallsEnqueuedBackToBackRunInOrder) {
  constexpr int calls = 500;
  const int size = GetParam();
  const auto outcome = on_host_group(size, [&](Communicator& communicator) {
    std::vector<std::int32_t> steps(calls);
    const Stream stream(Device{});
    for (int i = 0; i < calls; ++i) {
      std::int32_t* step = &steps[static_cast<std::size_t>(i)];
      stream.ref().enqueue_host([=, rank = communicator.rank()] { *step = (i == 0 ? 0 : step[-1]) + rank; });
      communicator.all_reduce(stream, {step, DType::i32, {1}}, Reduction::max);
    }
    stream.ref().synchronize();
    for (int i = 0; i < calls; ++i) ASSERT_EQ(steps[static_cast<std::size_t>(i)], (i + 1) * (size - 1));
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooCommunicatorOfSize, ReductionsHaveTheSameBitsOnAllRanksAndInAllRuns) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    std::vector<std::string> bits(2 * static_cast<std::size_t>(GetParam()));
    for (std::size_t run = 0; run < 2; ++run) {
      const auto outcome = on_host_group(GetParam(), [&](Communicator& communicator) {
        CollectiveCheck check(communicator, {}, 4099, 4);
        bits[run * static_cast<std::size_t>(GetParam()) + static_cast<std::size_t>(communicator.rank())] =
            check.reduced_bits(dtype, 4099);
      });
      EXPECT_THAT(outcome, Each(IsEmpty()));
    }
    for (const std::string& other : bits) EXPECT_TRUE(other == bits[0]) << to_string(dtype);
  }
}

TEST(GlooCommunicator, SeveralGroupsOfTheSameRanks) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(4, [&](int rank) {
    GroupSpec pair = host_group(rank % 2, 2);
    pair.name = "pair" + std::to_string(rank / 2);
    const auto in_pair = make_communicator(pair, *store);
    GroupSpec everyone = host_group(rank, 4);
    everyone.name = "everyone";
    const auto in_all = make_communicator(everyone, *store);
    CollectiveCheck small(*in_pair, {}, 33, 5);
    CollectiveCheck large(*in_all, {}, 33, 6);
    for (std::uint64_t call = 0; call < 100; ++call) {
      small.random_call(call);
      large.random_call(call);
    }
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

// Connections that come and go cost a turn of an idle event loop each, 10 ms, and messages could cost a time slice each (see
// comm/gloo/transport.h): together minutes for this test. The bound leaves room for sanitizers and busy machines.
TEST(GlooCommunicator, ManyRanksInManyGroupsDoNotWaitForIdleLoops) {
  constexpr int ranks = 8;
  constexpr int groups = 7;
  const auto store = make_thread_rendezvous();
  const auto start = std::chrono::steady_clock::now();
  const auto outcome = outcome_of_ranks(ranks, [&](int rank) {
    std::vector<std::unique_ptr<Communicator>> joined;
    for (int group = 0; group < groups; ++group) {
      GroupSpec spec = host_group(rank, ranks);
      spec.name = "group" + std::to_string(group);
      joined.push_back(make_communicator(spec, *store));
    }
    float value = 0;
    const Stream stream(Device{});
    for (int call = 0; call < 100; ++call) joined[0]->all_reduce(stream, {&value, DType::f32, {1}});
    stream.ref().synchronize();
  });
  const double taken = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  EXPECT_THAT(outcome, Each(IsEmpty()));
  RecordProperty("milliseconds", std::to_string(taken));
  EXPECT_LT(taken, 5000);
}

TEST(GlooCommunicator, OutlivedByItsCalls) {
  std::vector<float> data(3 * 1000, 1.0f);
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    const Stream stream(Device{});
    auto communicator = make_communicator(host_group(rank, 3), *store);
    communicator->all_reduce(stream, {data.data() + rank * 1000, DType::f32, {1000}});
    communicator.reset();
    stream.ref().synchronize();
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
  EXPECT_THAT(data, Each(3.0f));
}

TEST(GlooCommunicator, BrokenContractsAreReportedAtTheCall) {
  const auto outcome = on_host_group(2, [](Communicator& communicator) {
    const Stream stream(Device{});
    std::vector<float> data(8);
    const View eight(data.data(), DType::f32, {8});
    const View three(data.data(), DType::f32, {3});
    const View bytes(data.data(), DType::u8, {8});
    EXPECT_THROW(communicator.all_reduce(stream, bytes), InternalError);
    EXPECT_THROW(communicator.reduce_scatter(stream, eight, three), InternalError);
    EXPECT_THROW(communicator.all_gather(stream, three, eight), InternalError);
    EXPECT_THROW(communicator.all_to_all(stream, eight, eight), InternalError);
    EXPECT_THROW(communicator.all_to_all(stream, three, eight), InternalError);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

}  // namespace
}  // namespace plait::comm::test
