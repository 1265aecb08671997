// One job at a time in a run directory. With whole jobs: tests/app/run_owner_test.cpp.
#include "checkpoint/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "core/device.h"
#include "core/error.h"
#include "core/error_of.h"
#include "core/temporary_directory.h"

namespace plait::checkpoint {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

class RunLockTest : public testing::Test {
 protected:
  RunLock own(milliseconds patience = milliseconds(0)) {
    return RunLock::own(run_dir_, patience, [this](const std::string& text) { said_ += text; });
  }
  std::string refusal() {
    return error_of<ConfigError>([&] {
      own();
      return 0;
    });
  }

  plait::test::TemporaryDirectory directory_;
  std::filesystem::path run_dir_ = directory_.path();
  std::string said_;
};

// A process that holds what `take` takes, until it is killed.
class Holder {
 public:
  template <typename Take>
  explicit Holder(Take take) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    process_ = ::fork();
    if (process_ == 0) {
      const RunLock lock = take();
      static_cast<void>(!::write(ready[1], "x", 1));
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "the process did not get the lock";
    ::close(ready[0]);
  }
  ~Holder() { kill(); }
  pid_t process() const { return process_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

TEST_F(RunLockTest, ASecondOwnerIsRefusedAndToldWhoTheFirstIs) {
  Holder first([&] { return own(); });
  EXPECT_THAT(refusal(), AllOf(HasSubstr(run_dir_.string()), HasSubstr("is in use by another job"),
                               HasSubstr("process " + std::to_string(first.process()) + " on " + host_name() + ", since 20")));
}

TEST_F(RunLockTest, TheLockDiesWithItsProcess) {
  for (int round = 0; round < 5; ++round) {
    Holder first([&] { return own(); });
    first.kill();
    EXPECT_EQ(own().warning(), "");
  }
  EXPECT_EQ(said_, "");
}

TEST_F(RunLockTest, OwnersOfOneProcessExcludeEachOther) {
  std::optional<RunLock> first = own();
  EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(::getpid())));
  RunLock moved = std::move(*first);
  first.reset();
  EXPECT_THAT(refusal(), HasSubstr("in use"));
}

// Rank 0 was killed, and another rank still writes.
TEST_F(RunLockTest, ANewOwnerWaitsForTheRanksOfTheOldJob) {
  Holder zero([&] { return own(); });
  Holder one([&] { return RunLock::join(run_dir_); });
  const std::string owner = "process " + std::to_string(zero.process()) + " on " + host_name();
  zero.kill();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("ranks of the job that owned"), HasSubstr(owner), HasSubstr("still run")));
  EXPECT_THAT(said_, AllOf(HasSubstr("waiting for"), HasSubstr(owner)));

  std::jthread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    one.kill();
  });
  EXPECT_EQ(own(milliseconds(30'000)).warning(), "");
}

TEST_F(RunLockTest, ThePastOwnersNameIsReplaced) {
  {
    Holder before([&] { return own(); });
  }
  Holder now([&] { return own(); });
  EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(now.process()) + " on"));
}

TEST_F(RunLockTest, AnyNumberOfRanksJoinTheOwner) {
  const RunLock zero = own();
  const RunLock one = RunLock::join(run_dir_), two = RunLock::join(run_dir_);
  EXPECT_EQ(two.warning(), "");
}

// A job goes on in the directory that it has, under whatever name, and must not touch what has that name now.
TEST_F(RunLockTest, AnotherDirectoryInPlaceOfTheLockedOneIsTold) {
  namespace fs = std::filesystem;
  const fs::path moved = run_dir_ / "moved";
  run_dir_ /= "run";
  fs::create_directory(run_dir_);
  const RunLock zero = own(), one = RunLock::join(run_dir_);
  zero.require_in_place(run_dir_);
  one.require_in_place(run_dir_);
  fs::rename(run_dir_, moved);
  zero.require_in_place(run_dir_);  // gone altogether: that is for the writer to tell
  fs::create_directory(run_dir_);
  const auto refused = [&](const RunLock& lock) { return error_of<Error>([&] { lock.require_in_place(run_dir_); }); };
  EXPECT_THAT(refused(zero), AllOf(HasSubstr(run_dir_.string() + " was moved or replaced"), HasSubstr("owner.lock is not")));
  EXPECT_THAT(refused(one), HasSubstr("ranks.lock is not"));
  const RunLock other = own();
  EXPECT_THAT(refused(zero), HasSubstr("was moved or replaced")) << "by another job";
  other.require_in_place(run_dir_);
  fs::remove_all(run_dir_);
  fs::create_directory_symlink(moved, run_dir_);
  zero.require_in_place(run_dir_);
}

}  // namespace
}  // namespace plait::checkpoint
