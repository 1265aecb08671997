// Two jobs and one run directory, as real programs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/device.h"
#include "core/temporary_directory.h"
#include "run_plait.h"

namespace plait::app {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t endless = 1'000'000;  // steps
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

// Started, and not yet over.
class Started {
 public:
  Started(const std::string& command, const fs::path& errors) : errors_(errors) {
    const std::string text = "exec " + std::string(test_paths::plait) + " " + command + " > /dev/null 2> " + errors.string();
    std::array<const char*, 4> arguments = {"sh", "-c", text.c_str(), nullptr};
    EXPECT_EQ(::posix_spawn(&process_, "/bin/sh", nullptr, nullptr, const_cast<char**>(arguments.data()), environ), 0);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  ~Started() { end(SIGKILL); }

  pid_t process() const { return process_; }
  bool runs() const {
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT);
    return ended.si_pid == 0;
  }
  Outcome end(int signal = 0) {
    int status = 0;
    if (process_ == 0) return {};
    if (signal != 0) ::kill(process_, signal);
    ::waitpid(process_, &status, 0);
    process_ = 0;
    Outcome outcome;
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::ifstream file(errors_);
    outcome.errors.assign(std::istreambuf_iterator<char>(file), {});
    return outcome;
  }

 private:
  fs::path errors_;
  pid_t process_ = 0;
};

class RunOwner : public testing::Test {
 protected:
  RunOwner() {
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 400; ++i) text << "the quick brown fox jumps over the lazy dog " << i << "\n";
    text.close();
    std::ofstream(folder_ / "job.yaml") << "run: {name: a, dir: " << folder_.string() << "}\n"
                                        << "model: {layers: 1, hidden: 16, heads: 2}\n"
                                        << "data: {train: [" << (folder_ / "text").string() << "], sequence_length: 16}\n"
                                        << "train: {steps: 4, global_batch: 4, micro_batch: 2, optimizer: {lr: 1e-3}}\n"
                                        << "parallel: {data: 2}\nlaunch: {device: cpu}\nlog: {every: 1, tensorboard: false}\n"
                                        << "checkpoint: {every: 2}\ncomm: {timeout_s: 20}\n";
    const Outcome first = run_plait(folder_, "train " + (folder_ / "job.yaml").string());
    EXPECT_EQ(first.status, 0) << first.errors;
  }

  std::string resume(const std::string& mode, std::int64_t steps) const {
    return "train --resume " + run_.string() + " --set launch.mode=" + mode + " --set train.steps=" + std::to_string(steps);
  }
  // Until the run has gone beyond what it was resumed from.
  bool trains_beyond(std::int64_t step) const {
    for (int tries = 0; tries < 3000; ++tries) {
      if (last_step() > step) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }
  // Of metrics.jsonl, whose last line a kill may have cut off.
  std::int64_t last_step() const {
    std::ifstream file(run_ / "metrics.jsonl");
    std::int64_t last = 0;
    for (std::string line; std::getline(file, line);) {
      const auto parsed = nlohmann::json::parse(line, nullptr, false);
      if (parsed.is_object()) last = parsed.at("step").get<std::int64_t>();
    }
    return last;
  }
  // Takes a few steps more, and looks at what all of them together have left.
  void finish_and_check() {
    const std::int64_t steps = last_step() + 8;
    const Outcome last = run_plait(folder_, resume("threads", steps));
    EXPECT_EQ(last.status, 0) << last.errors;
    std::ifstream file(run_ / "metrics.jsonl");
    std::multiset<std::int64_t> seen;
    for (std::string line; std::getline(file, line);) seen.insert(nlohmann::json::parse(line).at("step").get<std::int64_t>());
    for (std::int64_t step = 1; step <= steps; ++step) EXPECT_EQ(seen.count(step), 1u) << "step " << step;
    for (const auto& entry : fs::directory_iterator(run_ / "checkpoints")) {
      EXPECT_THAT(entry.path().filename().string(), testing::StartsWith("step-"));
      EXPECT_TRUE(fs::exists(entry.path() / "state.json")) << entry.path();
    }
  }

  plait::test::TemporaryDirectory directory_;
  fs::path folder_ = directory_.path();
  fs::path run_ = folder_ / "a";
};

class RunOwnerByMode : public RunOwner, public testing::WithParamInterface<const char*> {};

TEST_P(RunOwnerByMode, OfTwoThatResumeAtOnceOneGoesOnAndTheOtherNamesIt) {
  for (int round = 1; round <= 6; ++round) {
    const std::int64_t before = last_step();
    Started a(resume(GetParam(), endless), folder_ / "errors-a"), b(resume(GetParam(), endless), folder_ / "errors-b");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (a.runs() && b.runs() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
    ASSERT_FALSE(a.runs() && b.runs()) << "both have the run directory";
    Started& winner = a.runs() ? a : b;
    const Outcome loser = (a.runs() ? b : a).end();
    EXPECT_EQ(loser.status, 2) << loser.errors;
    const bool is_rank = std::string(GetParam()) == "threads";  // of processes rank 0 is the owner
    EXPECT_THAT(loser.errors,
                AllOf(HasSubstr("is in use by another job: process " + (is_rank ? std::to_string(winner.process()) : "")),
                      HasSubstr(" on " + host_name() + ", since ")));
    ASSERT_TRUE(winner.runs() && trains_beyond(before + 6)) << winner.end(SIGKILL).errors;
    winner.end(SIGKILL);
  }
  finish_and_check();
}

TEST_P(RunOwnerByMode, AfterTheOwnerWasKilledAResumeGoesOnAtOnce) {
  for (int round = 1; round <= 4; ++round) {
    const std::int64_t before = last_step();
    Started owner(resume(GetParam(), endless), folder_ / "errors-owner");
    ASSERT_TRUE(trains_beyond(before + 2 * round)) << owner.end(SIGKILL).errors;
    owner.end(SIGKILL);
    finish_and_check();
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, RunOwnerByMode, testing::Values("threads", "processes"),
                         [](const auto& instance) { return std::string(instance.param); });

// Only rank 0 dies, and rank 1 is still there for a moment.
TEST_F(RunOwner, AfterRank0AloneWasKilledAResumeWaitsForTheOthers) {
  const std::int64_t before = last_step();
  Started owner(resume("processes", endless), folder_ / "errors-owner");
  ASSERT_TRUE(trains_beyond(before + 4)) << owner.end(SIGKILL).errors;
  std::ifstream file(run_ / "owner.lock");
  std::string word;
  pid_t rank0 = 0;
  file >> word >> rank0;
  ASSERT_GT(rank0, 1);
  ASSERT_NE(rank0, owner.process());
  ::kill(rank0, SIGKILL);
  finish_and_check();
  EXPECT_EQ(owner.end().status, 3);
}

TEST_F(RunOwner, ANewRunOfTheSameNameTakesAnotherDirectory) {
  Started owner(resume("threads", endless), folder_ / "errors-owner");
  ASSERT_TRUE(trains_beyond(4)) << owner.end(SIGKILL).errors;
  const Outcome second = run_plait(folder_, "train " + (folder_ / "job.yaml").string());
  EXPECT_EQ(second.status, 0) << second.errors;
  EXPECT_TRUE(fs::exists(folder_ / "a-2" / "owner.lock"));
}

TEST_F(RunOwner, WhatTakesThePlaceOfTheDirectoryOfARunIsLeftAlone) {
  const fs::path other = folder_ / "other";
  fs::create_directories(other / "checkpoints/.tmp-step-00000001");
  Started owner(resume("threads", endless) + " --set checkpoint.every=0", folder_ / "errors-owner");
  ASSERT_TRUE(trains_beyond(4)) << owner.end(SIGKILL).errors;
  ASSERT_EQ(::renameat2(AT_FDCWD, run_.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);
  const Outcome outcome = owner.end(SIGTERM);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.errors, HasSubstr(run_.string() + " was moved or replaced while the run went on"));
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/.tmp-step-00000001")) << "which another job may be writing";
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(run_), {}), 2);
}

}  // namespace
}  // namespace plait::app
