#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/error_of.h"
#include "launch_fixtures.h"

namespace plait::launch::test {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;

LaunchPlan cpu_threads(int ranks) {
  Config config;
  config.launch.device = "cpu";
  config.launch.ranks = ranks;
  return plan_launch(config);
}

void expect_all_reduce(comm::Communicator& communicator) {
  float value = 1;
  const Stream stream(Device{});
  communicator.all_reduce(stream, {&value, DType::f32, {1}});
  stream.ref().synchronize();
  EXPECT_EQ(value, static_cast<float>(communicator.size()));
}

TEST(LaunchThreads, EveryRankRunsOnceAndKnowsItsPlace) {
  std::mutex mutex;
  std::multiset<int> ranks;
  std::set<std::thread::id> threads;
  const int status = launch(cpu_threads(4),
                            [&](RankContext& context) {
                              EXPECT_EQ(context.size, 4);
                              EXPECT_EQ(context.local_rank, context.rank);
                              EXPECT_EQ(context.is_main, context.rank == 0);
                              EXPECT_EQ(context.device, (Device{DeviceKind::host, context.rank}));
                              const auto communicator = join(context);
                              expect_all_reduce(*communicator);
                              std::lock_guard lock(mutex);
                              ranks.insert(context.rank);
                              threads.insert(std::this_thread::get_id());
                            },
                            {});
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ranks, (std::multiset<int>{0, 1, 2, 3}));
  EXPECT_EQ(threads.size(), 4u);
}

TEST(LaunchThreads, AFailureReleasesRanksThatWaitInACollective) {
  const auto start = Clock::now();
  std::atomic<int> released = 0;
  const auto body = [&](RankContext& context) {
    const auto communicator = join(context);
    context.life->on_abort([weak = std::weak_ptr(communicator)] {
      if (const auto alive = weak.lock()) alive->abort();
    });
    expect_all_reduce(*communicator);
    if (context.rank == 2) throw DeviceError("out of memory");
    try {
      expect_all_reduce(*communicator);
    } catch (const CommError&) {
      ++released;
      throw;
    }
  };
  EXPECT_EQ(error_of<DeviceError>([&] { launch(cpu_threads(3), body, {}); }), "rank 2: out of memory");
  EXPECT_EQ(released, 2);
  EXPECT_LT(Clock::now() - start, seconds(20)) << "the collective's timeout is 60 s";
}

TEST(LaunchThreads, AFailureReleasesRanksThatWaitToJoin) {
  const auto start = Clock::now();
  const auto body = [&](RankContext& context) {
    if (context.rank == 1) throw ConfigError("no such file: data.txt");
    join(context);
  };
  EXPECT_EQ(error_of<ConfigError>([&] { launch(cpu_threads(2), body, {}); }), "rank 1: no such file: data.txt");
  EXPECT_LT(Clock::now() - start, seconds(20));
}

TEST(LaunchThreads, ClassesOfErrorsStay) {
  const auto fail_with = [](auto error) { return [error](RankContext&) { throw error; }; };
  const LaunchPlan plan = cpu_threads(2);
  EXPECT_THAT(error_of<CommError>([&] { launch(plan, fail_with(CommError("x")), {}); }),
              AllOf(StartsWith("rank "), HasSubstr(": x")));
  EXPECT_THAT(error_of<InternalError>([&] { launch(plan, fail_with(InternalError("x")), {}); }), StartsWith("rank "));
  EXPECT_THAT(error_of<Error>([&] { launch(plan, fail_with(std::runtime_error("x")), {}); }), StartsWith("rank "));
  EXPECT_THAT(error_of<PeerLostError>([&] { launch(plan, fail_with(PeerLostError("x")), {}); }), StartsWith("rank "));
  EXPECT_THAT(error_of<Interrupted>([&] { launch(plan, fail_with(Interrupted("x")), {}); }), StartsWith("rank "));
  struct OfThisTest : DeviceError {
    using DeviceError::DeviceError;
    int number = 7;
  };
  try {
    launch(plan, fail_with(OfThisTest("x")), {});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const OfThisTest& error) {
    EXPECT_EQ(error.number, 7);
    EXPECT_THAT(error.what(), AllOf(StartsWith("rank "), HasSubstr(": x")));
  }
  try {
    launch(plan, fail_with(ConfigError({{"train.steps", "0", "must be at least 1", "", 0}})), {});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 1u);
    EXPECT_EQ(error.problems().front().path, "train.steps");
  }
  EXPECT_EQ(error_of<CommError>([&] { launch(cpu_threads(1), fail_with(CommError("alone")), {}); }), "alone");
}

TEST(LaunchThreads, ActionsRegisteredAfterTheAbortRunAtOnce) {
  std::atomic<bool> ran = false;
  const auto body = [&](RankContext& context) {
    if (context.rank == 0) throw CommError("first");
    while (!context.life->is_aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    context.life->on_abort([&] { ran = true; });
    throw CommError("second");
  };
  EXPECT_EQ(error_of<CommError>([&] { launch(cpu_threads(2), body, {}); }), "rank 0: first");
  EXPECT_TRUE(ran);
}

// The rank that gave up is still cleaning up when its peer notices that it is gone.
TEST(LaunchThreads, ALostPeerIsNeverTheCauseWhereThereIsAnother) {
  const auto body = [](RankContext& context) {
    if (context.rank == 1) throw PeerLostError("lost rank 0");
    while (!context.life->is_aborted()) std::this_thread::yield();
    throw CommError("gave up");
  };
  EXPECT_EQ(error_of<CommError>([&] { launch(cpu_threads(2), body, {}); }), "rank 0: gave up");
}

TEST(LaunchThreads, ABrokenPlanIsRefused) {
  LaunchPlan plan = cpu_threads(2);
  plan.devices.pop_back();
  EXPECT_THROW(launch(plan, [](RankContext&) {}, {}), InternalError);
}

}  // namespace
}  // namespace plait::launch::test
