// Gloo between processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "collective_check.h"
#include "core/error.h"
#include "rank_processes.h"
#include "rank_threads.h"

namespace plait::comm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Communicator> join(ProcessPlace& place) {
  return make_communicator(host_group(place.rank, place.size), *place.store);
}

const plait::test::ChildProcess random_calls("GlooProcessRandomCalls", [] {
  ProcessPlace place;
  const auto communicator = join(place);
  CollectiveCheck check(*communicator, {}, 301, 7);
  for (std::uint64_t call = 0; call < 1000; ++call) check.random_call(call);
});

const plait::test::ChildProcess last_rank_is_killed("GlooProcessLastRankIsKilled", [] {
  ProcessPlace place;
  const auto communicator = join(place);
  std::vector<float> data(1 << 20);
  const Stream stream(Device{});
  for (int call = 0;; ++call) {
    if (call == 5 && place.rank == place.size - 1) std::raise(SIGKILL);
    communicator->all_reduce(stream, {data.data(), DType::f32, {1 << 20}});
    stream.ref().synchronize();
  }
});

class GlooProcess : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GlooProcess, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST_P(GlooProcess, RandomCallsGiveTheRightResults) {
  for (const Ended& rank : run_processes(random_calls, GetParam())) {
    EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
  }
}

TEST(GlooProcessFailure, AKilledPeerIsAnErrorOnTheOthersAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const auto ended = run_processes(last_rank_is_killed, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "the timeout is 60 s";
  EXPECT_TRUE(WIFSIGNALED(ended[2].status) && WTERMSIG(ended[2].status) == SIGKILL);
  for (const int survivor : {0, 1}) {
    const Ended& rank = ended[static_cast<std::size_t>(survivor)];
    EXPECT_TRUE(WIFEXITED(rank.status)) << "SIGPIPE or another signal ended rank " << survivor;
    EXPECT_THAT(rank.output,
                AllOf(HasSubstr("rank " + std::to_string(survivor) + " of 3: all_reduce: lost the connection to rank")));
  }
  EXPECT_TRUE(ended[0].output.find("to rank 2") != std::string::npos || ended[1].output.find("to rank 2") != std::string::npos);
}

}  // namespace
}  // namespace plait::comm::test
