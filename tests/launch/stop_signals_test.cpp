#include "launch/stop_signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "launch/launch_processes.h"
#include "launch_fixtures.h"

namespace plait::launch::test {
namespace {

void sleep_past_same_wish() { std::this_thread::sleep_for(StopSignals::same_wish + std::chrono::milliseconds(20)); }

// Signals that other processes send may take a moment.
bool comes_to(const StopSignals& signals, Stop wish) {
  for (int i = 0; i < 1000 && signals.wish() != wish; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return signals.wish() == wish;
}

class StopSignalsOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, StopSignalsOf, testing::Values(SIGINT, SIGTERM, SIGUSR1, SIGHUP),
                         [](const auto& instance) { return "signal_" + std::to_string(instance.param); });

TEST_P(StopSignalsOf, TheFirstIsAWishAndWhatComesWithItIsTheSame) {
  const StopSignals signals;
  EXPECT_EQ(signals.wish(), Stop::none);
  EXPECT_EQ(signals.signal(), 0);
  std::raise(GetParam());
  std::raise(GetParam());
  std::raise(SIGTERM);  // as a launcher does that turns a Ctrl-C into it
  EXPECT_EQ(signals.wish(), Stop::at_boundary);
  EXPECT_EQ(signals.signal(), GetParam());
}

TEST_P(StopSignalsOf, OneThatIsIgnoredStaysIgnored) {
  std::signal(GetParam(), SIG_IGN);
  {
    const StopSignals signals;
    std::raise(GetParam());
    EXPECT_EQ(signals.wish(), Stop::none);
  }
  EXPECT_EQ(std::signal(GetParam(), SIG_DFL), SIG_IGN);
}

const plait::test::ChildProcess third_signal("StopSignalsThird", [] {
  const StopSignals signals;
  const StopSignals::Attendance attendance;
  std::raise(SIGTERM);
  sleep_past_same_wish();
  std::raise(SIGINT);
  if (signals.wish() != Stop::at_once || signals.signal() != SIGTERM) return;
  std::raise(SIGINT);
});
const plait::test::ChildProcess unattended_second_signal("StopSignalsUnattendedSecond", [] {
  const StopSignals signals;
  std::raise(SIGTERM);
  sleep_past_same_wish();
  std::raise(SIGTERM);
});

const plait::test::ChildProcess late_signal("StopSignalsLate", [] {
  StopSignals().stay();
  std::raise(SIGTERM);
  std::raise(SIGTERM);
});

TEST(StopSignals, WhereTheyStayOneThatComesAtTheEndKillsNobody) {
  const int status = run_child(late_signal);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(StopSignals, ASecondOneIsToEndAtOnceAndAThirdEndsTheProcess) {
  EXPECT_TRUE(was_killed_by(run_child(third_signal), SIGINT));
}

TEST(StopSignals, ASecondOneEndsAProcessInWhichNobodyAttendsToIt) {
  EXPECT_TRUE(was_killed_by(run_child(unattended_second_signal), SIGTERM));
}

TEST(StopSignals, AnInnerOneKeepsTheWishAndTheOutermostRestores) {
  {
    const StopSignals outer;
    std::raise(SIGUSR1);
    const StopSignals inner;
    EXPECT_EQ(inner.wish(), Stop::at_boundary);
  }
  EXPECT_EQ(std::signal(SIGUSR1, SIG_DFL), SIG_DFL);
  EXPECT_EQ(StopSignals().wish(), Stop::none) << "the wish of another time";
}

// This process takes itself for its launcher.
class StopSignalsOfARank : public testing::Test {
 protected:
  EnvironmentVariable rank_{rank_variable, "0"}, launcher_{launcher_variable, std::to_string(getpid())};
  const StopSignals signals_;
  const StopSignals::Attendance attendance_;
};

TEST_F(StopSignalsOfARank, OnlyTheLauncherSaysThatItIsASecondOne) {
  std::raise(SIGTERM);  // Slurm sends it to every process of a step
  pass_on(getpid(), SIGTERM, Stop::at_boundary);
  sleep_past_same_wish();
  std::raise(SIGTERM);
  EXPECT_EQ(signals_.wish(), Stop::at_boundary);
  pass_on(getpid(), SIGTERM, Stop::at_once);
  EXPECT_TRUE(comes_to(signals_, Stop::at_once));
}

TEST_F(StopSignalsOfARank, TheLaunchersFirstWordMayBeThatItEndsAtOnce) {
  pass_on(getpid(), SIGINT, Stop::at_once);
  EXPECT_TRUE(comes_to(signals_, Stop::at_once));
  EXPECT_EQ(signals_.signal(), SIGINT);
}

TEST(StopSignals, AreBlockedInARanksProcessUntilItIsReady) {
  sigset_t before, blocked = mask_of_rank_process();
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const StopSignals signals;
  raise(SIGTERM);
  EXPECT_EQ(signals.wish(), Stop::none);
  unblock_stop_signals();
  EXPECT_TRUE(comes_to(signals, Stop::at_boundary));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace plait::launch::test
