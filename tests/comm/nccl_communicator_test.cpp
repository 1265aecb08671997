// Needs GPUs: the suites skip where there are too few.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <iostream>
#include <utility>

#include "collective_check.h"
#include "comm/nccl_environment.h"
#include "comm/p2p/facts.h"
#include "core/error.h"
#include "gpu_ranks.h"
#include "rank_processes.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

class GpuNcclCommunicator : public GpuRanks {};
INSTANTIATE_TEST_SUITE_P(Sizes, GpuNcclCommunicator, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

TEST_P(GpuNcclCommunicator, EveryOperationTypeAndOddCount) {
  const auto outcome = on_gpu_group(GetParam(), [](Communicator& communicator, Device device) {
    CollectiveCheck check(communicator, device, 1031, 1);
    check.every_operation({0, 1, 3, 17, 1031}, {DType::f32, DType::bf16, DType::u8});
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GpuNcclCommunicator, RandomCallsWithFewThreadBlocks) {
  const auto outcome = on_gpu_group(
      GetParam(),
      [](Communicator& communicator, Device device) {
        CollectiveCheck check(communicator, device, 997, 2);
        for (std::uint64_t call = 0; call < 500; ++call) check.random_call(call);
      },
      [](GroupSpec& spec) { spec.max_ctas = 4; });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GpuNcclCommunicator, ReductionsHaveTheSameBitsOnAllRanksAndInAllRuns) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    std::vector<std::string> bits(2 * static_cast<std::size_t>(GetParam()));
    for (std::size_t run = 0; run < 2; ++run) {
      const auto outcome = on_gpu_group(GetParam(), [&](Communicator& communicator, Device device) {
        CollectiveCheck check(communicator, device, 40'099, 4);
        bits[run * static_cast<std::size_t>(GetParam()) + static_cast<std::size_t>(communicator.rank())] =
            check.reduced_bits(dtype, 40'099);
      });
      EXPECT_THAT(outcome, Each(IsEmpty()));
    }
    for (const std::string& other : bits) EXPECT_TRUE(other == bits[0]) << to_string(dtype);
  }
}

TEST_P(GpuNcclCommunicator, EnqueuingDoesNotWaitForTheData) {
  constexpr int calls = 200;
  const auto outcome = on_gpu_group(GetParam(), [](Communicator& communicator, Device device) {
    constexpr std::int64_t count = 8 << 20;
    DeviceMemory memory(device);
    const Buffer buffer = memory.allocate(count * 4);
    const Stream stream(device);
    stream.ref().zero(buffer.data(), buffer.bytes());
    const View data(buffer.data(), DType::f32, {count});
    for (int i = 0; i < 10; ++i) communicator.all_reduce(stream, data);
    stream.ref().synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) communicator.all_reduce(stream, data);
    const auto enqueued = Clock::now() - start;
    stream.ref().synchronize();
    const auto finished = Clock::now() - start;
    const auto per_call = [](auto time) { return std::chrono::duration<double, std::micro>(time).count() / calls; };
    if (communicator.rank() == 0) {
      testing::Test::RecordProperty("enqueue_microseconds", std::to_string(per_call(enqueued)));
      std::printf("all_reduce of 32 MiB: host %.1f us, device %.1f us a call\n", per_call(enqueued), per_call(finished));
    }
    if (communicator.size() > 1) {
      EXPECT_LT(enqueued, finished / 2);
    }
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GpuNcclCommunicator, SmallCallsCostLittleHostTime) {
  constexpr int calls = 300;  // fewer than the launches that a stream holds before the host has to wait
  const auto outcome = on_gpu_group(GetParam(), [](Communicator& communicator, Device device) {
    DeviceMemory memory(device);
    const Buffer buffer = memory.allocate(64 << 10);
    const Stream stream(device);
    stream.ref().zero(buffer.data(), buffer.bytes());
    const View data(buffer.data(), DType::bf16, {32 << 10});
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < calls; ++i) communicator.all_reduce(stream, data);
      best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls);
      stream.ref().synchronize();
    }
    if (communicator.rank() == 0) {
      testing::Test::RecordProperty("enqueue_microseconds", std::to_string(best));
      std::printf("all_reduce of 64 KiB: host %.1f us a call\n", best);
    }
    EXPECT_LT(best, 25) << "a thread for each call costs 60 us";
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

// Every kind and size up to the largest that joining has made, when the peers are yet to make theirs.
TEST_P(GpuNcclCommunicator, CallsDoNotHoldUpTheHostUntilThePeersCome) {
  const int size = GetParam();
  std::promise<void> enqueued;
  auto may_come = enqueued.get_future().share();
  const auto outcome = on_gpu_group(size, [&](Communicator& communicator, Device device) {
    constexpr std::int64_t largest = 8 << 20;
    DeviceMemory memory(device);
    const Buffer buffer = memory.allocate(largest * 4);
    const Stream stream(device);
    stream.ref().zero(buffer.data(), buffer.bytes());
    stream.ref().synchronize();
    if (communicator.rank() != 0) may_come.wait_for(seconds(20));
    const auto start = Clock::now();
    for (std::int64_t count = 64; count <= largest; count *= 8) {
      const View data(buffer.data(), DType::f32, {count / size * size});
      const View part = data.rows(count / size * communicator.rank(), count / size);
      communicator.all_reduce(stream, data);
      communicator.reduce_scatter(stream, data, part);
      communicator.all_gather(stream, part, data);
    }
    if (communicator.rank() == 0) {
      EXPECT_LT(Clock::now() - start, milliseconds(500));
      enqueued.set_value();
    }
    stream.ref().synchronize();
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

class GpuNcclFailure : public TwoGpuRanks {};

TEST_F(GpuNcclFailure, AbortReleasesAStreamWhosePeerNeverComes) {
  const auto store = make_thread_rendezvous();
  const auto start = Clock::now();
  std::promise<void> drained;
  auto released = drained.get_future().share();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    const GroupSpec spec = gpu_group(rank, 2);
    make_current(spec.device);
    const auto communicator = make_communicator(spec, *store);
    DeviceMemory memory(spec.device);
    const Buffer buffer = memory.allocate(4096);
    const Stream stream(spec.device);
    const View data(buffer.data(), DType::f32, {1024});
    communicator->all_reduce(stream, data);
    stream.ref().synchronize();
    if (rank == 1) {
      released.wait();
      return communicator->abort();
    }
    const NextOn unanswered(stream);
    communicator->all_reduce(stream, data);
    std::thread aborter([&] {
      unanswered.wait_until_reached();
      communicator->abort();
    });
    stream.ref().synchronize();
    aborter.join();
    drained.set_value();
    communicator->all_reduce(stream, data);
  });
  EXPECT_LT(Clock::now() - start, seconds(40));
  EXPECT_THAT(outcome[0], AllOf(HasSubstr("group 'test', rank 0 of 2: all_reduce"), HasSubstr("aborted")));
  EXPECT_EQ(outcome[1], "");
}

// A host that runs ahead fills the stream's launch queue and then waits inside a call, which is when a peer's death finds it.
TEST_F(GpuNcclFailure, AbortReleasesAHostThatFilledTheLaunchQueue) {
  const auto start = Clock::now();
  std::promise<void> drained;
  auto released = drained.get_future().share();
  const auto outcome = on_gpu_group(2, [&](Communicator& communicator, Device device) {
    if (communicator.rank() == 1) {
      released.wait();
      return communicator.abort();
    }
    DeviceMemory memory(device);
    const Buffer buffer = memory.allocate(4096);
    const Stream stream(device);
    const View data(buffer.data(), DType::f32, {1024});
    std::atomic<int> calls = 0;
    std::thread aborter([&] {
      int before = 0;
      wait_until([&] {  // the queue is full: for a tenth of a second no call has come back
        std::this_thread::sleep_for(milliseconds(100));
        const int now = calls;
        return now > 0 && now == std::exchange(before, now);
      });
      communicator.abort();
    });
    try {
      for (; calls < 1'000'000; ++calls) communicator.all_reduce(stream, data);
    } catch (...) {
      aborter.join();
      stream.ref().synchronize();
      drained.set_value();
      throw;
    }
  });
  EXPECT_LT(Clock::now() - start, seconds(40));
  EXPECT_THAT(outcome[0], AllOf(HasSubstr("group 'test', rank 0 of 2: all_reduce"), HasSubstr("aborted")));
  EXPECT_EQ(outcome[1], "");
}

TEST_F(GpuNcclFailure, AbortOfOneGroupDoesNotWaitForAnother) {
  const auto store = make_thread_rendezvous();
  const auto start = Clock::now();
  std::promise<void> drained;
  auto released = drained.get_future().share();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    GroupSpec spec = gpu_group(rank, 2);
    make_current(spec.device);
    const auto first = make_communicator(spec, *store);
    spec.name = "second";
    const auto second = make_communicator(spec, *store);
    const auto abort_both = [&] {
      second->abort();  // whose call waits on the stream behind the first one's
      first->abort();
    };
    if (rank == 1) {
      released.wait();
      return abort_both();
    }
    DeviceMemory memory(spec.device);
    const Buffer buffer = memory.allocate(4096);
    const Stream stream(spec.device);
    const View data(buffer.data(), DType::f32, {1024});
    first->all_reduce(stream, data);
    second->all_reduce(stream, data);
    const auto aborting = Clock::now();
    abort_both();
    EXPECT_LT(Clock::now() - aborting, seconds(5));
    stream.ref().synchronize();
    drained.set_value();
  });
  EXPECT_LT(Clock::now() - start, seconds(40));
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_F(GpuNcclFailure, ARankThatNeverJoinsIsATimeout) {
  const auto store = make_thread_rendezvous();
  const auto start = Clock::now();
  const auto outcome = outcome_of_ranks(1, [&](int) { make_communicator(gpu_group(0, 2, milliseconds(1500)), *store); });
  EXPECT_LT(Clock::now() - start, seconds(30));
  EXPECT_THAT(outcome[0], AllOf(HasSubstr("rank 0 of 2: join"), HasSubstr("1500 ms")));
}

TEST_F(GpuNcclFailure, TheIdIsAwaitedNoLongerThanTheTimeout) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(1, [&](int) { make_communicator(gpu_group(1, 2, milliseconds(200)), *store); });
  EXPECT_THAT(outcome[0], AllOf(HasSubstr("rank 1 of 2: cannot join"), HasSubstr("test/nccl/id")));
}

// A rank of two: makes two groups, and leaves them in the order that PLAIT_TEST_LEAVES tells, one letter for each rank.
const plait::test::ChildProcess leaves_two_groups("GpuNcclLeavesTwoGroups", [] {
  const ProcessPlace place;
  make_current({DeviceKind::cuda, place.rank});
  std::vector<std::unique_ptr<Communicator>> groups;
  for (const char* name : {"first", "second"}) {
    GroupSpec spec = gpu_group(place.rank, place.size);
    spec.name = name;
    groups.push_back(make_communicator(spec, *place.store));
  }
  const auto start = Clock::now();
  const bool second_first = std::getenv("PLAIT_TEST_LEAVES")[place.rank] == 's';
  groups[second_first ? 1 : 0].reset();
  groups[second_first ? 0 : 1].reset();
  std::cout << "left after " << std::chrono::duration_cast<milliseconds>(Clock::now() - start).count() << " ms\n";
  EXPECT_LT(Clock::now() - start, seconds(20));
});

class GpuNcclProcesses : public TwoGpuRanks {
 protected:
  static void expect_both_leave(const std::string& order) {
    for (const Ended& rank : run_processes(leaves_two_groups, 2, {"PLAIT_TEST_LEAVES=" + order})) {
      EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
      EXPECT_THAT(rank.output, HasSubstr("left after"));
      const std::size_t says = rank.output.find("left after");
      if (says != std::string::npos)
        std::cout << order << ": " << rank.output.substr(says, rank.output.find('\n', says) - says) << "\n";
    }
  }
};

TEST_F(GpuNcclProcesses, LeaveTwoGroupsInOneOrder) { expect_both_leave("ff"); }

// Against the contract, and slow; but they do not wait for each other for good.
TEST_F(GpuNcclProcesses, LeaveTwoGroupsInDifferentOrders) { expect_both_leave("fs"); }

// Two threads with a group each of two GPUs, in a process of their own: NCCL looks at its environment once.
void expect_ways(PeerAccessUse access) {
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"}) ::unsetenv(name);
  settle_nccl_environment(access);
  const auto end = [](int gpu) { return p2p::end_facts(gpu, {DeviceKind::cuda, gpu}); };
  const bool can = p2p::path_facts(end(0), end(1)).peer_access;
  const auto outcome = on_gpu_group(2, [&](Communicator& communicator, Device) {
    const Paths paths = communicator.paths();
    EXPECT_EQ(paths.unknown, "");
    EXPECT_THAT(paths.by, HasSubstr("NCCL 2."));
    EXPECT_THAT(paths.algorithms, testing::Contains("ring"));
    EXPECT_GT(paths.channels, 0);
    ASSERT_FALSE(paths.pairs.empty());
    for (const PairPath& path : paths.pairs) {
      EXPECT_EQ(path.from, communicator.rank());
      EXPECT_EQ(path.to, 1 - communicator.rank());
      if (access == PeerAccessUse::off) {
        EXPECT_NE(path.carrier, Carrier::p2p) << path.via;
      } else if (can) {
        EXPECT_EQ(path.carrier, Carrier::p2p) << path.via;
      }
    }
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

const plait::test::ChildProcess ways_with_peer_access("NcclWaysWith", [] { expect_ways(PeerAccessUse::automatic); });
const plait::test::ChildProcess ways_without_peer_access("NcclWaysWithout", [] { expect_ways(PeerAccessUse::off); });

class GpuNcclWays : public TwoGpuRanks {};
TEST_F(GpuNcclWays, AreReadFromItsLog) { EXPECT_EQ(plait::test::run_child(ways_with_peer_access), 0); }
TEST_F(GpuNcclWays, WithPeerAccessOffAreOthers) { EXPECT_EQ(plait::test::run_child(ways_without_peer_access), 0); }

TEST_F(GpuNcclFailure, NamesItsVersion) { EXPECT_THAT(backend_name(DeviceKind::cuda), HasSubstr("NCCL 2.")); }

}  // namespace
}  // namespace plait::comm::test
