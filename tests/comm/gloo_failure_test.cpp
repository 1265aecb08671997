// What the survivors of a group see when a peer dies, hangs or calls something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "core/error.h"
#include "core/error_of.h"
#include "rank_threads.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

void all_reduce(Communicator& communicator, std::int64_t count) {
  std::vector<float> data(static_cast<std::size_t>(count), 1.0f);
  const Stream stream(Device{});
  communicator.all_reduce(stream, {data.data(), DType::f32, {count}});
  stream.ref().synchronize();
}

TEST(GlooFailure, APeerThatLeavesIsNamed) {
  const auto store = make_thread_rendezvous();
  const auto start = Clock::now();
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    const auto communicator = make_communicator(host_group(rank, 3), *store);
    all_reduce(*communicator, 100);
    if (rank == 1) return;
    all_reduce(*communicator, 100);
  });
  EXPECT_LT(Clock::now() - start, seconds(20)) << "the loss of a connection must not wait for the timeout";
  EXPECT_EQ(outcome[1], "");
  for (const int survivor : {0, 2}) {
    EXPECT_THAT(outcome[static_cast<std::size_t>(survivor)],
                AllOf(HasSubstr("group 'test', rank " + std::to_string(survivor) + " of 3: all_reduce"),
                      HasSubstr("lost the connection to rank")));
  }
  EXPECT_TRUE(outcome[0].find("to rank 1") != std::string::npos || outcome[2].find("to rank 1") != std::string::npos)
      << outcome[0] << "\n"
      << outcome[2];
}

// Lets the other rank go however this one leaves, also where it never joined.
class SetWhenLeft {
 public:
  explicit SetWhenLeft(std::promise<void>* promise) : promise_(promise) {}
  SetWhenLeft(const SetWhenLeft&) = delete;
  SetWhenLeft& operator=(const SetWhenLeft&) = delete;
  ~SetWhenLeft() {
    if (promise_) promise_->set_value();
  }

 private:
  std::promise<void>* promise_;
};

TEST(GlooFailure, AHangingPeerIsNamedAfterTheTimeout) {
  const auto store = make_thread_rendezvous();
  std::promise<void> both_gave_up;
  auto released = both_gave_up.get_future().share();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    const SetWhenLeft left(rank == 0 ? &both_gave_up : nullptr);
    const auto communicator = make_communicator(host_group(rank, 2, milliseconds(2000)), *store);
    if (rank == 1) return released.wait();
    const auto start = Clock::now();
    try {
      all_reduce(*communicator, 10);
    } catch (...) {
      EXPECT_GE(Clock::now() - start, milliseconds(2000));
      EXPECT_LT(Clock::now() - start, seconds(20));
      throw;
    }
  });
  EXPECT_THAT(outcome[0], AllOf(HasSubstr("rank 0 of 2: all_reduce"), HasSubstr("no answer from rank 1 for 2000 ms")));
  EXPECT_EQ(outcome[1], "");
}

TEST(GlooFailure, DifferentCallsTimeOutInsteadOfMixingData) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    const auto communicator = make_communicator(host_group(rank, 2, milliseconds(2000)), *store);
    all_reduce(*communicator, rank == 0 ? 10 : 11);
  });
  EXPECT_TRUE(outcome[0].find("made another call") != std::string::npos ||
              outcome[1].find("made another call") != std::string::npos)
      << outcome[0] << "\n"
      << outcome[1];
  for (const std::string& text : outcome) EXPECT_THAT(text, HasSubstr("all_reduce"));
}

TEST(GlooFailure, AbortEndsPendingCallsHereAndOnThePeers) {
  const auto store = make_thread_rendezvous();
  const auto start = Clock::now();
  std::atomic<int> calling = 0;
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    const auto communicator = make_communicator(host_group(rank, 3), *store);
    all_reduce(*communicator, 1);
    if (rank == 2) {
      // Never joins the next call; another thread gives up on its behalf while the rank itself is busy.
      std::thread([&] {
        wait_until([&] { return calling == 2; });
        communicator->abort();
      }).join();
      std::vector<float> data(1);
      const Stream stream(Device{});
      EXPECT_THROW(communicator->all_reduce(stream, {data.data(), DType::f32, {1}}), CommError);
      return;
    }
    ++calling;
    all_reduce(*communicator, 1000);
  });
  EXPECT_LT(Clock::now() - start, seconds(20));
  EXPECT_EQ(outcome[2], "");
  EXPECT_THAT(outcome[0], HasSubstr("lost the connection to rank"));
  EXPECT_THAT(outcome[1], HasSubstr("lost the connection to rank"));
}

TEST(GlooFailure, AbortEndsTheCallThatThisRankWaitsIn) {
  const auto store = make_thread_rendezvous();
  const auto start = Clock::now();
  std::promise<void> ended;
  auto released = ended.get_future().share();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    const auto communicator = make_communicator(host_group(rank, 2), *store);
    if (rank == 1) return released.wait();
    std::thread aborter([&] {
      std::this_thread::sleep_for(milliseconds(100));
      communicator->abort();
      communicator->abort();
    });
    try {
      all_reduce(*communicator, 10);
    } catch (...) {
      aborter.join();
      ended.set_value();
      throw;
    }
  });
  EXPECT_LT(Clock::now() - start, seconds(20));
  EXPECT_THAT(outcome[0], HasSubstr("group 'test', rank 0 of 2: all_reduce: aborted"));
}

TEST(GlooFailure, AbortAtAnyMomentEndsAllRanks) {
  for (int moment = 0; moment < 40; ++moment) {
    const auto store = make_thread_rendezvous();
    const auto start = Clock::now();
    const auto outcome = outcome_of_ranks(3, [&](int rank) {
      const auto communicator = make_communicator(host_group(rank, 3), *store);
      std::thread aborter([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * moment));
        if (rank == 0) communicator->abort();
      });
      try {
        for (;;) all_reduce(*communicator, moment % 2 == 0 ? 10 : 300'000);
      } catch (...) {
        aborter.join();
        throw;
      }
    });
    EXPECT_LT(Clock::now() - start, seconds(20));
    for (const std::string& text : outcome) EXPECT_THAT(text, HasSubstr("all_reduce"));
  }
}

TEST(GlooFailure, ARankThatNeverJoinsIsATimeout) {
  const auto store = make_thread_rendezvous();
  try {
    make_communicator(host_group(0, 2, milliseconds(300)), *store);
    FAIL() << "joined a group of two alone";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("group 'test', rank 0 of 2: cannot join"), HasSubstr("within 300 ms")));
  }
}

TEST(GlooFailure, ARankThatFailsBeforeItJoinsReleasesTheOthers) {
  const auto store = make_thread_rendezvous();
  const auto start = Clock::now();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    if (rank == 1) return store->abort("rank 1 found no data");
    make_communicator(host_group(0, 2), *store);
  });
  EXPECT_LT(Clock::now() - start, seconds(20));
  EXPECT_THAT(outcome[0], AllOf(HasSubstr("cannot join"), HasSubstr("rank 1 found no data")));
}

TEST(GlooFailure, AnAddressThatIsNotOursIsAnError) {
  const auto store = make_thread_rendezvous();
  GroupSpec spec = host_group(0, 2, milliseconds(300));
  spec.host_interface = "192.0.2.1";  // reserved for documentation (RFC 5737)
  EXPECT_THAT(error_of<ConfigError>([&] { return make_communicator(spec, *store); }),
              AllOf(HasSubstr("comm.interface=192.0.2.1"), HasSubstr("no address of this host"), HasSubstr("lo 127.0.0.1")));
}

TEST(MakeCommunicator, RefusesSpecsOutsideTheContract) {
  const auto store = make_thread_rendezvous();
  EXPECT_THROW(make_communicator(host_group(2, 2), *store), InternalError);
  EXPECT_THROW(make_communicator(host_group(-1, 2), *store), InternalError);
  GroupSpec nameless = host_group(0, 1);
  nameless.name = "";
  EXPECT_THROW(make_communicator(nameless, *store), InternalError);
  EXPECT_THAT(backend_name(DeviceKind::host), testing::StartsWith("Gloo 0."));
}

TEST(MakeCommunicator, ASingleRankGroupCanBeAborted) {
  const auto store = make_thread_rendezvous();
  const auto communicator = make_communicator(host_group(0, 1), *store);
  const Stream stream(Device{});
  float value = 4;
  const View view(&value, DType::f32, {1});
  communicator->all_reduce(stream, view);
  stream.ref().synchronize();
  EXPECT_EQ(value, 4);
  communicator->abort();
  EXPECT_THROW(communicator->all_reduce(stream, view), CommError);
}

}  // namespace
}  // namespace plait::comm::test
