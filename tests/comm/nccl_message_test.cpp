// send and receive among GPU ranks. Needs GPUs: the suites skip where there are too few.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "core/error.h"
#include "gpu_ranks.h"
#include "message_check.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

void ask_for_messages(GroupSpec& spec) { spec.point_to_point = true; }

class GpuNcclMessages : public GpuRanks {};
INSTANTIATE_TEST_SUITE_P(Sizes, GpuNcclMessages, testing::Values(2, 3, 4, 8), testing::PrintToStringParamName());

TEST_P(GpuNcclMessages, ArriveBetweenEveryPair) {
  const auto outcome = on_gpu_group(
      GetParam(),
      [](Communicator& communicator, Device device) {
        MessageCheck check(communicator, device, 1031 * 8);
        for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::u8}) {
          for (const std::int64_t count : {0, 1, 3, 1031}) check.every_pair(dtype, count);
        }
      },
      ask_for_messages);
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GpuNcclMessages, OfEightMegabytes) {
  const auto outcome = on_gpu_group(
      GetParam(),
      [](Communicator& communicator, Device device) {
        MessageCheck check(communicator, device, 8 << 20);
        check.every_pair(DType::f64, 1 << 20);
      },
      ask_for_messages);
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GpuNcclMessages, KeepTheirOrder) {
  const auto outcome = on_gpu_group(
      GetParam(),
      [](Communicator& communicator, Device device) {
        MessageCheck check(communicator, device, 800);
        check.many_in_order(0, 1, 400);
        check.many_in_order(communicator.size() - 1, 0, 400);
      },
      ask_for_messages);
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GpuNcclMessages, AreHandedAlongAChain) {
  const auto outcome = on_gpu_group(
      GetParam(),
      [](Communicator& communicator, Device device) {
        MessageCheck check(communicator, device, 4 * 70'001);
        check.chain(DType::f32, 70'001);
        check.chain(DType::bf16, 1);
      },
      ask_for_messages);
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(GpuNcclMessages, MixWithCollectives) {
  const auto outcome = on_gpu_group(
      GetParam(),
      [](Communicator& communicator, Device device) {
        MessageCheck check(communicator, device, 400);
        check.between_collectives(120);
      },
      ask_for_messages);
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

class GpuNcclPair : public TwoGpuRanks {};

TEST_F(GpuNcclPair, CrossesOnTwoCommunicators) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    GroupSpec spec = gpu_group(rank, 2);
    spec.point_to_point = true;
    make_current(spec.device);
    const auto forward = make_communicator(spec, *store);
    spec.name = "backward";
    const auto backward = make_communicator(spec, *store);
    MessageCheck(*forward, spec.device, 4000).both_ways(*backward, 100);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_F(GpuNcclPair, ReportsBrokenContractsAtTheCall) {
  for (const bool point_to_point : {false, true}) {
    const auto outcome = on_gpu_group(
        2,
        [&](Communicator& communicator, Device device) {
          const Stream stream(device);
          const View nothing(nullptr, DType::f32, {0});
          for (const int nobody : {-1, 2, communicator.rank()}) {
            EXPECT_THROW(communicator.send(stream, nothing, nobody), InternalError);
            EXPECT_THROW(communicator.receive(stream, nothing, nobody), InternalError);
          }
          communicator.send(stream, nothing, 1 - communicator.rank());
        },
        [&](GroupSpec& spec) { spec.point_to_point = point_to_point; });
    if (point_to_point) {
      EXPECT_THAT(outcome, Each(IsEmpty()));
    } else {
      EXPECT_THAT(outcome, Each(HasSubstr("joined without GroupSpec::point_to_point")));
    }
  }
}

TEST_F(GpuNcclPair, AMessageDoesNotHoldUpTheHostUntilThePeerComes) {
  std::promise<void> enqueued;
  auto may_come = enqueued.get_future().share();
  const auto outcome = on_gpu_group(
      2,
      [&](Communicator& communicator, Device device) {
        DeviceMemory memory(device);
        const Buffer buffer = memory.allocate(8 << 20);
        const Stream stream(device);
        const View data(buffer.data(), DType::f32, {2 << 20});
        if (communicator.rank() == 0) {
          const auto start = Clock::now();
          communicator.send(stream, data, 1);
          EXPECT_LT(Clock::now() - start, milliseconds(200));
          enqueued.set_value();
        } else {
          may_come.wait_for(seconds(20));
          communicator.receive(stream, data, 0);
        }
        stream.ref().synchronize();
      },
      ask_for_messages);
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_F(GpuNcclPair, AbortReleasesAReceiveThatNobodyAnswers) {
  std::promise<void> drained;
  auto released = drained.get_future().share();
  const auto start = Clock::now();
  const auto outcome = on_gpu_group(
      2,
      [&](Communicator& communicator, Device device) {
        if (communicator.rank() == 1) {
          released.wait();
          return communicator.abort();
        }
        DeviceMemory memory(device);
        const Buffer buffer = memory.allocate(4096);
        const Stream stream(device);
        const View data(buffer.data(), DType::f32, {1024});
        const NextOn unanswered(stream);
        communicator.receive(stream, data, 1);
        std::thread aborter([&] {
          unanswered.wait_until_reached();
          communicator.abort();
        });
        stream.ref().synchronize();
        aborter.join();
        drained.set_value();
        communicator.receive(stream, data, 1);
      },
      ask_for_messages);
  EXPECT_LT(Clock::now() - start, seconds(40));
  EXPECT_THAT(outcome[0], AllOf(HasSubstr("group 'test', rank 0 of 2: receive"), HasSubstr("aborted")));
  EXPECT_EQ(outcome[1], "");
}

}  // namespace
}  // namespace plait::comm::test
