#include "study/point_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "child_process.h"
#include "core/file.h"
#include "core/temporary_directory.h"

namespace plait::study {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

const plait::test::ChildProcess says_and_ends("point-says", [] {
  std::cout << "result" << std::flush;
  std::cerr << "warming up\nplait: rank 1: host:1: out of memory: cannot allocate 5 bytes\nplait: more\n" << std::flush;
  std::_Exit(3);
});

// Leaves a process behind that has made itself a session of its own, and that writes its number down.
const plait::test::ChildProcess leaves_one_behind("point-orphan", [] {
  if (::fork() == 0) {
    ::setsid();
    if (::fork() == 0) {
      const std::string file = std::getenv("PLAIT_TEST_ORPHAN");
      std::ofstream(file + ".part") << ::getpid() << std::endl;
      std::filesystem::rename(file + ".part", file);
      for (;;) ::pause();
    }
    ::_exit(0);
  }
  while (!std::filesystem::exists(std::getenv("PLAIT_TEST_ORPHAN"))) ::usleep(1'000);
  std::_Exit(0);
});

const plait::test::ChildProcess hangs("point-hangs", [] {
  std::cerr << "step 1\n" << std::flush;
  for (;;) ::pause();
});

const plait::test::ChildProcess is_ended_with_the_job("point-ended", [] {
  ::usleep(100'000);
  ::raise(SIGTERM);
});

const plait::test::ChildProcess tells_its_variable("point-variable", [] {
  std::cout << std::getenv("PLAIT_TEST_GIVEN") << " " << (std::getenv("HOME") != nullptr) << std::flush;
});

class PointProcess : public testing::Test {
 protected:
  ProcessSpec spec(const plait::test::ChildProcess& child, milliseconds deadline) const {
    return {.argv = child.arguments(), .output = folder_.path() + "/out", .log = folder_.path() + "/log", .deadline = deadline};
  }
  std::string log() const { return read_text(folder_.path() + "/log", 1 << 20); }
  plait::test::TemporaryDirectory folder_;
};

bool never() { return false; }

TEST_F(PointProcess, KeepsOutputAndLogAndFindsTheFirstError) {
  const ProcessEnd end = run_process(spec(says_and_ends, milliseconds(60'000)), never);
  EXPECT_FALSE(end.ok());
  EXPECT_EQ(read_text(folder_.path() + "/out", 100), "result");
  const Verdict verdict = verdict_of(end, log(), milliseconds(60'000));
  EXPECT_EQ(verdict.outcome, Outcome::out_of_memory);
  EXPECT_EQ(verdict.message, "rank 1: host:1: out of memory: cannot allocate 5 bytes");
}

TEST_F(PointProcess, EndsWhatRunsLongerThanItMay) {
  const ProcessEnd end = run_process(spec(hangs, milliseconds(1500)), never);
  EXPECT_TRUE(end.timed_out);
  const Verdict verdict = verdict_of(end, log(), milliseconds(1500));
  EXPECT_EQ(verdict.outcome, Outcome::timed_out);
  EXPECT_THAT(verdict.message, testing::AllOf(HasSubstr("longer than 1.5 s"), HasSubstr("step 1")));
}

TEST_F(PointProcess, NothingOfTheTreeOutlivesIt) {
  const std::string file = folder_.path() + "/orphan";
  ::setenv("PLAIT_TEST_ORPHAN", file.c_str(), 1);
  EXPECT_TRUE(run_process(spec(leaves_one_behind, milliseconds(60'000)), never).ok());
  const int orphan = std::atoi(read_text(file, 100).c_str());
  ASSERT_GT(orphan, 0);
  EXPECT_EQ(::kill(orphan, 0), -1) << "it still runs";
}

TEST_F(PointProcess, EndsWhenAskedTo) {
  int asked = 0;
  const ProcessEnd end = run_process(spec(hangs, milliseconds(60'000)), [&] { return ++asked > 5; });
  EXPECT_TRUE(end.interrupted);
  EXPECT_FALSE(end.ok());
}

TEST_F(PointProcess, IsInterruptedWhereTheStopComesRightAfterItsEnd) {
  const auto began = std::chrono::steady_clock::now();
  const auto stop = [&] { return std::chrono::steady_clock::now() - began > milliseconds(300); };
  const ProcessEnd end = run_process(spec(is_ended_with_the_job, milliseconds(60'000)), stop);
  EXPECT_TRUE(end.interrupted) << "a cancelled job's processes get their signals one after the other";
  EXPECT_FALSE(run_process(spec(is_ended_with_the_job, milliseconds(60'000)), never).interrupted);
}

TEST_F(PointProcess, HasItsVariablesBesidesThisProcesss) {
  ::setenv("PLAIT_TEST_GIVEN", "old", 1);
  ProcessSpec with = spec(tells_its_variable, milliseconds(60'000));
  with.environment = {{"PLAIT_TEST_GIVEN", "new"}};
  EXPECT_TRUE(run_process(with, never).ok());
  EXPECT_EQ(read_text(folder_.path() + "/out", 100), "new 1");
}

TEST_F(PointProcess, OneWithGraceIsToldToEndFirst) {
  ProcessSpec told = spec(hangs, milliseconds(100));
  told.grace = milliseconds(60'000);
  const ProcessEnd end = run_process(told, never);
  EXPECT_TRUE(end.timed_out);
  EXPECT_EQ(WTERMSIG(end.status), SIGTERM);
}

TEST(ProcessVerdict, SaysWhoKilledIt) {
  const auto verdict = [](int status, const std::string& log) {
    return verdict_of({.status = status}, log, milliseconds(1000));
  };
  EXPECT_EQ(verdict(SIGKILL, "").message, "was killed by signal 9 (Killed)");
  EXPECT_EQ(verdict(SIGKILL, "").outcome, Outcome::failed);
  EXPECT_EQ(verdict(3 << 8, "").message, "exited with status 3");
  EXPECT_EQ(verdict(SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'\n").outcome,
            Outcome::out_of_memory);
  EXPECT_EQ(verdict(3 << 8, "plait: CUDA: out of memory\n").outcome, Outcome::out_of_memory);
  EXPECT_EQ(verdict(2 << 8, "a\nb\n \n").message, "b");
  EXPECT_EQ(verdict_of({.status = 2 << 8}, "plait: 1 problem in the input:\n  data.train=x: matches no file\n", milliseconds(1))
                .message,
            "1 problem in the input: data.train=x: matches no file");
  EXPECT_EQ(verdict_of({.status = SIGKILL, .kernel_ended_one = true}, "", milliseconds(1)).outcome, Outcome::out_of_memory);
}

}  // namespace
}  // namespace plait::study
