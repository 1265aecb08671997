// Strangers who connect while the ranks of a host group find each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>

#include "collective_check.h"
#include "comm/meeting.h"
#include "comm/tcp/reception.h"
#include "core/error.h"
#include "descriptor_count.h"
#include "rank_threads.h"
#include "stranger.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

class GlooStranger : public NothingLeftBehind {};

// One start of a job: the last rank is late, so that the others' ports are open for a while.
std::vector<std::string> start_ranks(int size) {
  const auto store = make_thread_rendezvous();
  return outcome_of_ranks(size, [&](int rank) {
    if (rank == size - 1) std::this_thread::sleep_for(milliseconds(40));
    const auto communicator = make_communicator(host_group(rank, size), *store);
    std::vector<float> data(1000, static_cast<float>(rank + 1));
    const Stream stream(Device{});
    communicator->all_reduce(stream, {data.data(), DType::f32, {1000}});
    stream.ref().synchronize();
    EXPECT_THAT(data, Each(static_cast<float>(size * (size + 1) / 2)));
  });
}

TEST_F(GlooStranger, WhoConnectsToEveryPortChangesNothing) {
  constexpr int starts = 20, size = 3;
  Stranger stranger;
  // On a busy machine a port may be closed again before the stranger looks.
  for (int start = 0; start < starts || (stranger.ports() < starts / 2 && start < 10 * starts); ++start)
    EXPECT_THAT(start_ranks(size), Each(IsEmpty())) << "start " << start;
  stranger.leave();
  RecordProperty("ports", stranger.ports());
  EXPECT_GE(stranger.ports(), starts / 2) << "the test does not show anything: the stranger came too late";
  // Who speaks plait's language gets a challenge: random bytes, and nothing that belongs to the job.
  EXPECT_LE(stranger.heard().size(), 32u * static_cast<unsigned>(stranger.connections()));
}

TEST_F(GlooStranger, MoreSilentOnesThanThereIsRoomForDoNotKeepARankOut) {
  int ports = 0;
  for (int start = 0; start < 3 || (ports < 3 && start < 60); ++start) {
    Stranger stranger(static_cast<int>(Reception::least_room) + 20);
    EXPECT_THAT(start_ranks(3), Each(IsEmpty()));
    stranger.leave();
    ports += stranger.ports();
  }
  EXPECT_GE(ports, 3);
}

// Once the ranks are connected, nobody listens any more.
TEST_F(GlooStranger, NoPortStaysOpen) {
  const std::set<int> before = listening_ports();
  const auto store = make_thread_rendezvous();
  std::barrier connected(3);
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    const auto communicator = make_communicator(host_group(rank, 3), *store);
    connected.arrive_and_wait();
    EXPECT_EQ(listening_ports(), before);
    connected.arrive_and_wait();
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_F(GlooStranger, IsNotTakenForARankThatDoesNotCallAndNotBlamed) {
  const auto store = make_thread_rendezvous();
  Stranger stranger;
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    if (rank < 2) {
      make_communicator(host_group(rank, 3, milliseconds(500)), *store);
      return;
    }
    // Says where it is, in rank 0's words, and then nothing more, like a rank that has been stopped.
    Meeting meeting(*store, "test", rank, 3, seconds(30));
    meeting.say("gloo/addresses", meeting.hear<Json>("gloo/addresses", 0));
  });
  stranger.leave();
  EXPECT_GE(stranger.ports(), 2);
  EXPECT_THAT(outcome[0], AllOf(HasSubstr("rank 0 of 3: cannot join"), HasSubstr("within 500 ms: rank 2 did not call ("),
                                HasSubstr("connections from elsewhere were dropped)")));
  EXPECT_THAT(outcome[1], AllOf(HasSubstr("rank 1 of 3: cannot join"), HasSubstr("within 500 ms: rank 2 did not call (")));
}

}  // namespace
}  // namespace plait::comm::test
