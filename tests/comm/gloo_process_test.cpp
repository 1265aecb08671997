// Ranks as processes: this test program starts itself once per rank, with the rank's place in the environment.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "collective_check.h"
#include "core/error.h"
#include "rank_threads.h"
#include "temporary_directory.h"

namespace plait::comm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Ended {
  int status = 0;      // as waitpid tells
  std::string output;  // standard output and standard error
};

// Runs the disabled test `child` below as `size` processes that share a fresh rendezvous directory.
std::vector<Ended> run_processes(const std::string& child, int size) {
  const TemporaryDirectory directory;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> environment = {"PLAIT_TEST_RANK=" + std::to_string(rank), "PLAIT_TEST_SIZE=" + std::to_string(size),
                                            "PLAIT_TEST_RENDEZVOUS=" + directory.path() + "/store"};
    for (char** variable = environ; *variable; ++variable) environment.emplace_back(*variable);
    std::vector<std::string> arguments = {"test_comm", "--gtest_filter=GlooProcessChild.DISABLED_" + child,
                                          "--gtest_also_run_disabled_tests"};
    const auto pointers = [](std::vector<std::string>& strings) {
      std::vector<char*> result;
      for (std::string& text : strings) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    const std::string log = directory.path() + "/log" + std::to_string(rank);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    pid_t process = 0;
    EXPECT_EQ(posix_spawn(&process, "/proc/self/exe", &files, nullptr, pointers(arguments).data(), pointers(environment).data()), 0);
    posix_spawn_file_actions_destroy(&files);
    processes.push_back(process);
  }
  std::vector<Ended> ended(processes.size());
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    EXPECT_EQ(waitpid(processes[rank], &ended[rank].status, 0), processes[rank]);
    ended[rank].output = text_of(directory.path() + "/log" + std::to_string(rank));
  }
  return ended;
}

// The children's place; they are disabled tests, so that only run_processes() starts them.
struct Place {
  int rank = std::atoi(std::getenv("PLAIT_TEST_RANK"));
  int size = std::atoi(std::getenv("PLAIT_TEST_SIZE"));
  std::shared_ptr<Rendezvous> store = make_directory_rendezvous(std::getenv("PLAIT_TEST_RENDEZVOUS"));
  std::unique_ptr<Communicator> join() { return make_communicator(host_group(rank, size), *store); }
};

TEST(GlooProcessChild, DISABLED_RandomCalls) {
  Place place;
  const auto communicator = place.join();
  CollectiveCheck check(*communicator, {}, 301, 7);
  for (std::uint64_t call = 0; call < 1000; ++call) check.random_call(call);
}

TEST(GlooProcessChild, DISABLED_LastRankIsKilled) {
  Place place;
  const auto communicator = place.join();
  std::vector<float> data(1 << 20);
  const Stream stream(Device{});
  for (int call = 0;; ++call) {
    if (call == 5 && place.rank == place.size - 1) std::raise(SIGKILL);
    communicator->all_reduce(stream, {data.data(), DType::f32, {1 << 20}});
    stream.ref().synchronize();
  }
}

class GlooProcess : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GlooProcess, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST_P(GlooProcess, RandomCallsGiveTheRightResults) {
  for (const Ended& rank : run_processes("RandomCalls", GetParam())) {
    EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
    EXPECT_THAT(rank.output, HasSubstr("[  PASSED  ] 1 test"));
  }
}

TEST(GlooProcessFailure, AKilledPeerIsAnErrorOnTheOthersAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const auto ended = run_processes("LastRankIsKilled", 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "the timeout is 60 s";
  EXPECT_TRUE(WIFSIGNALED(ended[2].status) && WTERMSIG(ended[2].status) == SIGKILL);
  for (const int survivor : {0, 1}) {
    const Ended& rank = ended[static_cast<std::size_t>(survivor)];
    EXPECT_TRUE(WIFEXITED(rank.status)) << "SIGPIPE or another signal ended rank " << survivor;
    EXPECT_THAT(rank.output, AllOf(HasSubstr("rank " + std::to_string(survivor) + " of 3: all_reduce: lost the connection to rank")));
  }
  EXPECT_TRUE(ended[0].output.find("to rank 2") != std::string::npos || ended[1].output.find("to rank 2") != std::string::npos);
}

}  // namespace
}  // namespace plait::comm::test
