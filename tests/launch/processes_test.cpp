// Ranks as processes: the launcher starts this test program again, which then runs one of the bodies below.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "child_process.h"
#include "comm/meeting.h"
#include "core/error.h"
#include "launch/stop_agreement.h"
#include "launch/stop_signals.h"
#include "launch_fixtures.h"

namespace plait::launch::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

LaunchPlan three_processes() {
  Config config;
  config.launch.device = "cpu";
  config.launch.mode = LaunchMode::processes;
  config.launch.ranks = 3;
  LaunchPlan plan = plan_launch(config);
  plan.grace = milliseconds(1500);
  return plan;
}

bool alive(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/stat");
  std::string id, name, state;
  return (status >> id >> name >> state) && state != "Z" && state != "X";
}

// Where bodies leave a file named after each rank that has come up, holding its process id.
class LaunchProcesses : public testing::Test {
 protected:
  // Launches `body` three times, from here. What it leaves in TMPDIR is a leftover.
  int run(const plait::test::ChildProcess& body) {
    return launch(three_processes(), [](RankContext&) { FAIL() << "the parent ran a body"; }, body.arguments());
  }
  std::string failure_of(const plait::test::ChildProcess& body) {
    try {
      return "status " + std::to_string(run(body));
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::vector<pid_t> processes() const {
    std::vector<pid_t> result;
    for (const auto& entry : std::filesystem::directory_iterator(marks_.path())) {
      pid_t process = 0;
      if (std::ifstream(entry.path()) >> process) result.push_back(process);
    }
    return result;
  }
  void TearDown() override {
    for (const pid_t process : processes()) EXPECT_FALSE(alive(process)) << process << " outlived its launcher";
    EXPECT_TRUE(std::filesystem::is_empty(temporary_.path())) << "left something in TMPDIR";
  }

  plait::test::TemporaryDirectory marks_;
  plait::test::TemporaryDirectory temporary_;
  EnvironmentVariable marks_variable_{"PLAIT_TEST_MARKS", marks_.path()};
  EnvironmentVariable temporary_variable_{"TMPDIR", temporary_.path()};
  Clock::time_point start_ = Clock::now();
};

// The bodies. launch() finds in the environment which rank this process is.
void run_body(const std::function<void(RankContext&)>& body) {
  const LaunchPlan plan = three_processes();
  ASSERT_TRUE(plan.this_rank) << "started by hand?";
  const int status = launch(plan,
                            [&](RankContext& context) {
                              const std::string mark =
                                  std::string(getenv("PLAIT_TEST_MARKS")) + "/" + std::to_string(context.rank);
                              std::ofstream(mark + ".new") << getpid();
                              std::filesystem::rename(mark + ".new", mark);
                              body(context);
                            },
                            {});
  EXPECT_EQ(status, 0);
}

void all_reduce(comm::Communicator& communicator) {
  float value = 1;
  const Stream stream(Device{});
  communicator.all_reduce(stream, {&value, DType::f32, {1}});
  stream.ref().synchronize();
  if (value != static_cast<float>(communicator.size())) std::_Exit(77);
}

const plait::test::ChildProcess collective("LaunchProcessesCollective", [] {
  run_body([](RankContext& context) {
    EXPECT_EQ(context.size, 3);
    EXPECT_EQ(context.is_main, context.rank == 0);
    const auto communicator = join(context);
    for (int call = 0; call < 20; ++call) all_reduce(*communicator);
  });
});

const plait::test::ChildProcess one_killed("LaunchProcessesOneKilled", [] {
  run_body([](RankContext& context) {
    const auto communicator = join(context);
    all_reduce(*communicator);
    if (context.rank == 1) std::raise(SIGKILL);
    try {
      all_reduce(*communicator);
    } catch (const CommError&) {
      std::_Exit(3);
    }
  });
});

const plait::test::ChildProcess one_exits("LaunchProcessesOneExits", [] {
  run_body([](RankContext& context) {
    if (context.rank == 2) std::_Exit(2);
    join(context);
  });
});

// Another loses it before it is gone.
const plait::test::ChildProcess one_exits_slowly("LaunchProcessesOneExitsSlowly", [] {
  run_body([](RankContext& context) {
    if (context.rank == 0) std::signal(SIGTERM, SIG_IGN);
    context.meeting("test", seconds(60)).meet("ready");
    if (context.rank == 1) std::_Exit(3);
    std::this_thread::sleep_for(milliseconds(800));
    std::_Exit(2);
  });
});

const plait::test::ChildProcess one_fails_the_others_ignore_sigterm("LaunchProcessesOneFailsTheOthersIgnoreSigterm", [] {
  run_body([](RankContext& context) {
    std::signal(SIGTERM, SIG_IGN);
    context.meeting("test", seconds(60)).meet("ready");
    if (context.rank == 0) std::_Exit(1);
    for (;;) std::this_thread::sleep_for(seconds(1));
  });
});

const plait::test::ChildProcess hang("LaunchProcessesHang", [] {
  run_body([](RankContext&) {
    for (;;) std::this_thread::sleep_for(seconds(1));
  });
});

const plait::test::ChildProcess stop_for_a_signal("LaunchProcessesStopForASignal", [] {
  const StopSignals signals;
  run_body([&](RankContext& context) {
    StopAgreement agreement(signals, context, seconds(30));
    while (!agreement.stop_here()) std::this_thread::sleep_for(milliseconds(1 + context.rank));
    if (agreement.reason() != "signal 10 (User defined signal 1)") std::_Exit(77);
    context.meeting("test", seconds(30)).meet("stopped");
    std::_Exit(stopped_status);
  });
});

// A launcher in a process of its own, to be signalled.
[[noreturn]] void launch_and_exit(const plait::test::ChildProcess& body) {
  try {
    std::_Exit(launch(three_processes(), [](RankContext&) {}, body.arguments()));
  } catch (const Error& error) {
    std::ofstream(std::string(getenv("PLAIT_TEST_MARKS")) + ".message") << error.what();
    std::_Exit(3);
  }
}
const plait::test::ChildProcess launcher_of_hang("LaunchProcessesLauncherOfHang", [] { launch_and_exit(hang); });
const plait::test::ChildProcess launcher_of_stop("LaunchProcessesLauncherOfStop", [] { launch_and_exit(stop_for_a_signal); });

TEST_F(LaunchProcesses, AllRanksRunAndNothingStays) {
  EXPECT_EQ(run(collective), 0);
  EXPECT_EQ(processes().size(), 3u);
}

TEST_F(LaunchProcesses, AKilledRankIsNamedFirst) {
  EXPECT_THAT(failure_of(one_killed),
              AllOf(testing::StartsWith("rank 1 (process "), HasSubstr("was killed by signal 9 (Killed)")));
  EXPECT_LT(Clock::now() - start_, seconds(20));
}

TEST_F(LaunchProcesses, AnExitStatusIsPassedOnAndTheOthersEnd) {
  EXPECT_EQ(run(one_exits), 2);
  EXPECT_LT(Clock::now() - start_, seconds(20)) << "the others wait 60 s to join";
}

TEST_F(LaunchProcesses, TheStatusOfTheCauseIsPassedOnHoweverLongItTakesToEnd) { EXPECT_EQ(run(one_exits_slowly), 2); }

TEST_F(LaunchProcesses, RanksThatIgnoreSigtermAreKilledAfterTheGrace) {
  EXPECT_EQ(run(one_fails_the_others_ignore_sigterm), 1);
  EXPECT_GT(Clock::now() - start_, milliseconds(1500));
  EXPECT_LT(Clock::now() - start_, seconds(20));
}

class LaunchProcessesSignal : public LaunchProcesses {
 protected:
  // Starts a launcher, sends it `signal` once its ranks are up, and returns how it ended.
  int signal_launcher(int signal, const plait::test::ChildProcess& launcher_process = launcher_of_hang) {
    std::vector<std::string> arguments = launcher_process.arguments();
    std::vector<char*> pointers;
    for (std::string& text : arguments) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    pid_t launcher = 0;
    EXPECT_EQ(posix_spawn(&launcher, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ), 0);
    while (processes().size() < 3 && Clock::now() - start_ < seconds(60)) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_EQ(processes().size(), 3u);
    kill(launcher, signal);
    int status = 0;
    EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
    return status;
  }
};

TEST_F(LaunchProcessesSignal, SigtermIsPassedOn) {
  const int status = signal_launcher(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  std::ifstream file(marks_.path() + ".message");
  std::string message;
  std::getline(file, message);
  EXPECT_EQ(message, "interrupted by signal 15 (Terminated)");
  std::filesystem::remove(marks_.path() + ".message");
}

TEST_F(LaunchProcessesSignal, RanksThatStopForItGiveTheJobTheirStatus) {
  const int status = signal_launcher(SIGUSR1, launcher_of_stop);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == stopped_status) << status;
}

TEST_F(LaunchProcessesSignal, NoRankOutlivesAKilledLauncher) {
  const int status = signal_launcher(SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(status));
  const auto all_gone = [&] {
    for (const pid_t process : processes()) {
      if (alive(process)) return false;
    }
    return true;
  };
  while (!all_gone() && Clock::now() - start_ < seconds(60)) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(all_gone());
}

}  // namespace
}  // namespace plait::launch::test
