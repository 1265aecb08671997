// send and receive among host ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "core/error.h"
#include "message_check.h"
#include "rank_threads.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

GroupSpec message_group(int rank, int size, milliseconds timeout = seconds(60)) {
  GroupSpec spec = host_group(rank, size, timeout);
  spec.point_to_point = true;
  return spec;
}

std::vector<std::string> on_message_group(int size, const std::function<void(Communicator&)>& body,
                                          milliseconds timeout = seconds(60)) {
  const auto store = make_thread_rendezvous();
  return outcome_of_ranks(size, [&](int rank) {
    const auto communicator = make_communicator(message_group(rank, size, timeout), *store);
    body(*communicator);
  });
}

class GlooMessagesOfSize : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GlooMessagesOfSize, testing::Values(2, 3, 4), testing::PrintToStringParamName());

TEST_P(GlooMessagesOfSize, ArriveBetweenEveryPair) {
  const auto outcome = on_message_group(GetParam(), [](Communicator& communicator) {
    MessageCheck check(communicator, {}, 1031 * 8);
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::u8}) {
      for (const std::int64_t count : {0, 1, 3, 1031}) check.every_pair(dtype, count);
    }
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooMessagesOfSize, OfEightMegabytes) {
  const auto outcome = on_message_group(GetParam(), [](Communicator& communicator) {
    MessageCheck check(communicator, {}, 8 << 20);
    check.every_pair(DType::f64, 1 << 20);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooMessagesOfSize, KeepTheirOrder) {
  const auto outcome = on_message_group(GetParam(), [](Communicator& communicator) {
    MessageCheck check(communicator, {}, 800);
    check.many_in_order(0, 1, 400);
    check.many_in_order(communicator.size() - 1, 0, 400);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooMessagesOfSize, AreHandedAlongAChain) {
  const auto outcome = on_message_group(GetParam(), [](Communicator& communicator) {
    MessageCheck check(communicator, {}, 4 * 70'001);
    check.chain(DType::f32, 70'001);
    check.chain(DType::bf16, 1);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GlooMessagesOfSize, MixWithCollectives) {
  const auto outcome = on_message_group(GetParam(), [](Communicator& communicator) {
    MessageCheck check(communicator, {}, 400);
    check.between_collectives(120);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST(GlooMessages, CrossOnTwoCommunicators) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    GroupSpec spec = message_group(rank, 2);
    const auto forward = make_communicator(spec, *store);
    spec.name = "backward";
    const auto backward = make_communicator(spec, *store);
    MessageCheck(*forward, {}, 4000).both_ways(*backward, 100);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST(GlooMessages, BrokenContractsAreReportedAtTheCall) {
  const auto outcome = on_message_group(2, [](Communicator& communicator) {
    const Stream stream(Device{});
    float value = 0;
    const View one(&value, DType::f32, {1});
    for (const int nobody : {-1, 2, communicator.rank()}) {
      EXPECT_THROW(communicator.send(stream, one, nobody), InternalError);
      EXPECT_THROW(communicator.receive(stream, one, nobody), InternalError);
    }
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST(GlooMessages, NeedAGroupThatWasJoinedForThem) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    const auto communicator = make_communicator(host_group(rank, 2), *store);
    const Stream stream(Device{});
    float value = 0;
    const View one(&value, DType::f32, {1});
    EXPECT_THROW(communicator->send(stream, one, 1 - rank), InternalError);
    communicator->receive(stream, one, 1 - rank);
  });
  EXPECT_THAT(outcome, Each(HasSubstr("joined without GroupSpec::point_to_point")));
}

TEST(GlooMessages, ASingleRankHasNobodyToSendTo) {
  const auto store = make_thread_rendezvous();
  const auto communicator = make_communicator(message_group(0, 1), *store);
  const Stream stream(Device{});
  float value = 0;
  EXPECT_THROW(communicator->send(stream, {&value, DType::f32, {1}}, 0), InternalError);
  EXPECT_THROW(communicator->receive(stream, {&value, DType::f32, {1}}, 0), InternalError);
}

TEST(GlooMessageFailure, APeerThatLeavesIsNamed) {
  const auto store = make_thread_rendezvous();
  const auto start = Clock::now();
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    const auto communicator = make_communicator(message_group(rank, 3), *store);
    if (rank == 1) return;
    const Stream stream(Device{});
    std::vector<float> data(1000);
    const View view(data.data(), DType::f32, {1000});
    if (rank == 0) communicator->send(stream, view, 1);
    if (rank == 2) communicator->receive(stream, view, 1);
    stream.ref().synchronize();
  });
  EXPECT_LT(Clock::now() - start, seconds(20)) << "the loss of a connection must not wait for the timeout";
  EXPECT_THAT(outcome[0], HasSubstr("group 'test', rank 0 of 3: send: lost the connection to rank 1"));
  EXPECT_EQ(outcome[1], "");
  EXPECT_THAT(outcome[2], HasSubstr("group 'test', rank 2 of 3: receive: lost the connection to rank 1"));
}

TEST(GlooMessageFailure, APeerThatGoesHalfWayThroughAMessageIsNamed) {
  constexpr std::int64_t count = 2 << 20;
  for (const int sender : {0, 1}) {
    for (int moment = 0; moment < 10; ++moment) {
      const auto store = make_thread_rendezvous();
      const auto start = Clock::now();
      const auto outcome = outcome_of_ranks(2, [&](int rank) {
        const auto communicator = make_communicator(message_group(rank, 2), *store);
        std::thread aborter([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(400 * moment));
          if (rank == 1) communicator->abort();
        });
        std::vector<float> data(count);
        const View view(data.data(), DType::f32, {count});
        try {
          const Stream stream(Device{});
          for (;;) {
            rank == sender ? communicator->send(stream, view, 1 - rank) : communicator->receive(stream, view, 1 - rank);
            stream.ref().synchronize();
          }
        } catch (...) {
          aborter.join();
          throw;
        }
      });
      EXPECT_LT(Clock::now() - start, seconds(20)) << "the loss of a connection must not wait for the timeout";
      EXPECT_THAT(outcome[0], HasSubstr("lost the connection to rank 1"));
      EXPECT_THAT(outcome[1], HasSubstr("aborted"));
    }
  }
}

// Runs `call` on rank 0 while rank 1 is there, but answers with nothing before rank 0 gave up.
std::string rank_0_alone(const std::function<void(Communicator&, StreamRef, View)>& call) {
  const auto store = make_thread_rendezvous();
  std::promise<void> gave_up;
  auto released = gave_up.get_future().share();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    const auto join_and_call = [&] {
      const auto communicator = make_communicator(message_group(rank, 2, milliseconds(1500)), *store);
      if (rank == 1) return released.wait();
      const Stream stream(Device{});
      float value = 0;
      call(*communicator, stream, {&value, DType::f32, {1}});
      stream.ref().synchronize();
    };
    try {
      join_and_call();
    } catch (...) {
      if (rank == 0) gave_up.set_value();
      throw;
    }
  });
  return outcome[0];
}

TEST(GlooMessageFailure, ASilentPeerIsNamedAfterTheTimeout) {
  EXPECT_THAT(rank_0_alone([](Communicator& communicator, StreamRef stream, View one) { communicator.send(stream, one, 1); }),
              AllOf(HasSubstr("rank 0 of 2: send"), HasSubstr("no answer from rank 1 for 1500 ms")));
  EXPECT_THAT(
      rank_0_alone([](Communicator& communicator, StreamRef stream, View one) { communicator.receive(stream, one, 1); }),
      AllOf(HasSubstr("rank 0 of 2: receive"), HasSubstr("no answer from rank 1 for 1500 ms")));
}

TEST(GlooMessageFailure, AbortEndsAMessageThatWaits) {
  EXPECT_THAT(rank_0_alone([](Communicator& communicator, StreamRef stream, View one) {
                communicator.receive(stream, one, 1);
                communicator.abort();
              }),
              HasSubstr("rank 0 of 2: receive: aborted"));
}

TEST(GlooMessageFailure, OtherSizesOrOtherCallsNeverMatch) {
  const auto outcome = on_message_group(
      2,
      [](Communicator& communicator) {
        const Stream stream(Device{});
        float data[2] = {};
        if (communicator.rank() == 0) communicator.send(stream, {data, DType::f32, {1}}, 1);
        if (communicator.rank() == 1) communicator.receive(stream, {data, DType::f32, {2}}, 0);
        stream.ref().synchronize();
      },
      milliseconds(1500));
  EXPECT_THAT(outcome, testing::Contains(HasSubstr("made another call")));
  EXPECT_THAT(outcome[0], HasSubstr("rank 0 of 2: send"));
  EXPECT_THAT(outcome[1], HasSubstr("rank 1 of 2: receive"));
}

}  // namespace
}  // namespace plait::comm::test
