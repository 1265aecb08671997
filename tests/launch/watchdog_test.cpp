// Ranks that die, stop, hang or lose a message, in whole runs: what is said, how the run ends, and what is left of it.
//
// Times have a margin for machines that are busy with other tests; a run that only ended by its collectives' own time limit, or
// never, would not keep within them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "child_process.h"
#include "comm/meeting.h"
#include "comm/tcp/socket.h"
#include "core/error.h"
#include "core/error_of.h"
#include "launch/launch.h"
#include "launch/process_state.h"
#include "watchdog_job.h"
#include "watchdog_lost_message.h"

namespace plait::launch::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr double timeout_s = 6, margin_s = 9;
constexpr std::chrono::duration<double> standstill(0.6 * timeout_s);  // docs/failures.md

int times_in(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// Layouts, as configuration.
const std::string pipeline = "parallel: {pipeline: 2, data: 1}\ntrain: {steps: 100000, global_batch: 4, micro_batch: 1}\n";
const std::string pipeline_and_data =
    "parallel: {pipeline: 2, data: 2}\ntrain: {steps: 100000, global_batch: 4, micro_batch: 1}\n";
const std::string data = "parallel: {data: 2}\ntrain: {steps: 100000, global_batch: 4, micro_batch: 1}\n";
const std::string by_links = data + "comm: {timeout_s: 6, reductions: links}\n";
const std::string processes = "launch: {device: cpu, mode: processes}\n";

class WatchdogRun : public testing::TestWithParam<std::string> {
 protected:
  // Ends in status 3, in time, with nothing left.
  void expect_ended(std::size_t index = 0) {
    const JobEnd end = job_.wait(index);
    EXPECT_EQ(end.status, 3) << job_.errors(index);
    EXPECT_LT(end.seconds.count(), timeout_s + margin_s) << job_.errors(index);
    RecordProperty("seconds", std::to_string(end.seconds.count()));
    if (std::getenv("PLAIT_TEST_SHOW"))
      std::printf("--- ended after %.1f s\n%s---\n", end.seconds.count(), job_.errors(index).c_str());
  }
  // Kills one of two ranks that nobody else looks after, and sees the other end; `victim` is its process.
  void lose(int rank, pid_t& victim) {
    ASSERT_TRUE(job_.under_way()) << job_.errors(0) << job_.errors(1);
    victim = job_.process_of(rank, "RANK");
    job_.start_clock();
    ::kill(victim, SIGKILL);
    job_.wait(static_cast<std::size_t>(rank));  // so that it is gone as a process whose parent waited for it
    expect_ended(static_cast<std::size_t>(1 - rank));
    EXPECT_EQ(job_.leftovers(), "");
  }
  WatchedJob job_;
};

TEST_P(WatchdogRun, AKilledRankIsNamedWithWhatTheOthersWaitedFor) {
  job_.start(GetParam() + processes);
  ASSERT_TRUE(job_.under_way()) << job_.errors();
  const pid_t victim = job_.process_of(1);
  job_.start_clock();
  ::kill(victim, SIGKILL);
  expect_ended();
  const std::string errors = job_.errors();
  EXPECT_THAT(errors, HasSubstr("rank 0: the run cannot go on: rank 1 (process " + std::to_string(victim) +
                                ") was killed by signal 9 (Killed)\n"));
  EXPECT_THAT(errors, ContainsRegex("rank 0 \\(process [0-9]+\\) .*`[a-z_]+[^`]*`"));
  EXPECT_THAT(errors, HasSubstr("plait: rank 1 (process " + std::to_string(victim) + ") was killed by signal 9 (Killed)"));
  EXPECT_EQ(job_.leftovers(), "");
}

TEST_P(WatchdogRun, AStoppedRankIsNamedAndDoesNotStay) {
  job_.start(GetParam() + processes);
  ASSERT_TRUE(job_.under_way()) << job_.errors();
  const pid_t victim = job_.process_of(1);
  job_.start_clock();
  ::kill(victim, SIGSTOP);
  expect_ended();
  const std::string errors = job_.errors(), process = std::to_string(victim);
  EXPECT_THAT(errors, HasSubstr("rank 0: the run cannot go on: rank 1 does not answer: its process " + process +
                                " is stopped (SIGSTOP, or a debugger)\n"));
  EXPECT_THAT(errors, ContainsRegex("rank [0-9] \\(process [0-9]+\\) .*waits in `[a-z_]+[^`]*` for rank 1"));
  EXPECT_THAT(errors, HasSubstr("rank 1 (process " + process + ") is stopped (SIGSTOP, or a debugger) and has been killed"));
  EXPECT_EQ(job_.leftovers(), "");
}

TEST_P(WatchdogRun, TheStoryIsToldOnce) {
  job_.start(GetParam() + processes);
  ASSERT_TRUE(job_.under_way()) << job_.errors();
  job_.start_clock();
  ::kill(job_.process_of(1), SIGSTOP);
  expect_ended();
  const std::string errors = job_.errors();
  EXPECT_EQ(times_in(errors, "first noticed: "), 1) << errors;
  EXPECT_EQ(times_in(errors, "\n  rank 0 (process "), 1) << errors;
  const int ranks = GetParam() == pipeline_and_data ? 4 : 2;
  EXPECT_EQ(times_in(errors, "(rank 0 tells more)"), ranks - 2) << errors;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, WatchdogRun, testing::Values(pipeline, pipeline_and_data, data, by_links), [](const auto& instance) {
      const std::string& layout = instance.param;
      return layout == pipeline ? "Pipeline" : layout == data ? "Data" : layout == by_links ? "DataByLinks" : "PipelineAndData";
    });

// Nobody else looks after the ranks here.
class WatchdogExternalRun : public WatchdogRun {
 protected:
  void start_both() {
    for (int rank = 0; rank < 2; ++rank) {
      job_.start(pipeline + "launch: {device: cpu, mode: external, rendezvous: " + (job_.folder() / "meet").string() + "}\n",
                 {"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "LOCAL_RANK=" + std::to_string(rank)});
    }
  }
};

TEST_F(WatchdogExternalRun, TheSurvivorSeesAKilledRankItself) {
  start_both();
  pid_t victim = 0;
  ASSERT_NO_FATAL_FAILURE(lose(1, victim));
  EXPECT_THAT(job_.errors(0), AllOf(HasSubstr("the run cannot go on: rank 1 does not answer: its process " +
                                              std::to_string(victim) + " has ended"),
                                    ContainsRegex("rank 0 \\(process [0-9]+\\)")));
}

// The same without a directory: rank 0 keeps the rendezvous.
class WatchdogTcpRun : public WatchdogRun {
 protected:
  void start(int rank, int size, const std::string& layout = pipeline) {
    job_.start(layout + "launch: {device: cpu, mode: external, rendezvous: 'tcp://127.0.0.1:" + port_ + "'}\n",
               {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size), "LOCAL_RANK=" + std::to_string(rank),
                "PLAIT_TOKEN=a secret that nobody guesses"});
  }

 private:
  const std::string port_ = std::to_string(comm::port_of(comm::listen_on("127.0.0.1", 0)));
};

TEST_F(WatchdogTcpRun, TheSurvivorSeesAKilledRankItself) {
  for (const int rank : {0, 1}) start(rank, 2);
  pid_t victim = 0;
  ASSERT_NO_FATAL_FAILURE(lose(1, victim));
  EXPECT_THAT(job_.errors(0),
              HasSubstr("the run cannot go on: rank 1 does not answer: its process " + std::to_string(victim) + " has ended"));
}

TEST_F(WatchdogTcpRun, TheLossOfRankZeroIsTheLossOfTheRendezvous) {
  for (const int rank : {0, 1}) start(rank, 2);
  ASSERT_TRUE(job_.under_way()) << job_.errors(0) << job_.errors(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 1's watchdog has seen where rank 0 lives
  pid_t victim = 0;
  ASSERT_NO_FATAL_FAILURE(lose(0, victim));
  // On a connection that it has, or on one that it was about to make.
  EXPECT_THAT(job_.errors(1), AllOf(HasSubstr("the run cannot go on: rendezvous: rank 0, which keeps it"),
                                    AnyOf(HasSubstr("is gone"), HasSubstr("was not reached within 3000 ms at 127.0.0.1:")),
                                    HasSubstr("rank 0 does not answer: its process " + std::to_string(victim) + " has ended"),
                                    HasSubstr("\n  rank 1 (process ")));
}

TEST_F(WatchdogTcpRun, AbsentRanksAreNamedOnAllOthers) {
  for (const int rank : {0, 2}) start(rank, 4, "parallel: {data: 4}\ntrain: {steps: 100, global_batch: 4, micro_batch: 1}\n");
  for (const std::size_t index : {0u, 1u}) {
    const JobEnd end = job_.wait(index);
    EXPECT_EQ(end.status, 3);
    EXPECT_LT(end.seconds, std::chrono::seconds(20)) << "comm.timeout_s is 6";
    EXPECT_THAT(job_.errors(index),
                AllOf(HasSubstr("not all 4 ranks of the job have come"), HasSubstr("ranks 1, 3 did not start")));
  }
}

TEST_F(WatchdogTcpRun, RankZeroIsNamedWhereItIsTheOneThatDoesNotCome) {
  start(1, 2);
  const JobEnd end = job_.wait(0);
  EXPECT_EQ(end.status, 3);
  EXPECT_LT(end.seconds, std::chrono::seconds(20)) << "comm.timeout_s is 6";
  EXPECT_THAT(job_.errors(0), AllOf(HasSubstr("rank 0"), HasSubstr("was not reached within 6000 ms"), HasSubstr("refused")));
}

TEST_F(WatchdogExternalRun, BothStoppedForAWhileGoOn) {
  start_both();
  ASSERT_TRUE(job_.under_way()) << job_.errors(0) << job_.errors(1);
  const pid_t first = job_.process_of(0, "RANK"), second = job_.process_of(1, "RANK");
  ::kill(first, SIGSTOP), ::kill(second, SIGSTOP);
  const auto is_stopped = [](pid_t process) { return process_state(process) == ProcessState::stopped; };
  ASSERT_TRUE(within(std::chrono::seconds(10), [&] { return is_stopped(first) && is_stopped(second); }));
  std::this_thread::sleep_for(1.2 * standstill);  // nobody may take the time for a standstill in which nobody looked
  ::kill(second, SIGCONT), ::kill(first, SIGCONT);
  const int before = job_.logged();
  EXPECT_TRUE(within(std::chrono::seconds(30), [&] { return job_.logged() > before + 20; }))
      << job_.errors(0) << job_.errors(1);
}

// --- a message that never comes ---

// The third of the second step. The next one takes its place, and the one after that is waited for.
constexpr int lost_message = 7;

void expect_lost_message(const std::string& text) {
  EXPECT_THAT(
      text,
      HasSubstr("the run cannot go on: a message from rank 0 to rank 1 was lost: 8 were sent, 7 came, and rank 1 waits in "
                "`receive_activation micro-batch 3 chunk 0`\n"));
  EXPECT_THAT(text,
              ContainsRegex("\n  rank 1 \\(process [0-9]+\\) waits in `receive_activation micro-batch 3[^`]*` for rank 0"));
  EXPECT_THAT(text,
              ContainsRegex("\n  rank 0 \\(process [0-9]+\\) waits in `receive_gradient micro-batch [0-9][^`]*` for rank 1"));
  EXPECT_THAT(text, ContainsRegex("\n  first noticed: rank [01] did not get any further for"));
}

void train_over(RankContext& rank, int lost) {
  FlawedRank flawed(two_stages(timeout_s), rank, lost);
  flawed.session.run([&] {
    for (int step = 0; step < 5; ++step) flawed.step();
  });
}

LaunchPlan two_threads(DeviceKind kind) {
  return {.mode = LaunchMode::threads, .ranks = 2, .devices = {{kind, 0}, {kind, 1}}, .explanation = {}, .this_rank = {}};
}

// What launch() throws when rank 0's `lost`-th message to rank 1 does not come.
std::string failure_of_threads(DeviceKind kind, int lost) {
  return error_of<CommError>(
      [&] { return launch(two_threads(kind), [lost](RankContext& rank) { train_over(rank, lost); }, {}); });
}

TEST(WatchdogLostMessage, IsToldFromOneThatIsNotSentByThreads) {
  const auto start = Clock::now();
  const std::string failure = failure_of_threads(DeviceKind::host, lost_message);
  EXPECT_LT(Clock::now() - start, std::chrono::duration<double>(timeout_s + margin_s));
  if (std::getenv("PLAIT_TEST_SHOW")) std::printf("--- %s\n", failure.c_str());
  expect_lost_message(failure);
  EXPECT_EQ(failure_of_threads(DeviceKind::host, 0), nothing_thrown) << "and the same job without the loss";
}

TEST(GpuWatchdog, ALostMessageLeavesNoThreadStuck) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto free_bytes = [] {
    return memory_info({DeviceKind::cuda, 0}).free_bytes + memory_info({DeviceKind::cuda, 1}).free_bytes;
  };
  ASSERT_EQ(failure_of_threads(DeviceKind::cuda, 0), nothing_thrown);
  const std::size_t free_before = free_bytes();
  const auto start = Clock::now();
  const std::string failure = failure_of_threads(DeviceKind::cuda, lost_message);
  EXPECT_LT(Clock::now() - start, std::chrono::duration<double>(timeout_s + margin_s));
  if (std::getenv("PLAIT_TEST_SHOW")) std::printf("--- %s\n", failure.c_str());
  expect_lost_message(failure);
  // The devices are as good as before, and so is their memory, but for what libraries keep.
  EXPECT_EQ(failure_of_threads(DeviceKind::cuda, 0), nothing_thrown);
  EXPECT_GT(free_bytes() + (std::size_t{256} << 20), free_before);
}

// --- bodies that run in processes of their own ---

LaunchPlan two_processes() {
  Config config = two_stages(timeout_s);
  config.launch.device = "cpu", config.launch.mode = LaunchMode::processes;
  return plan_launch(config);
}

// What a rank throws goes to a file named after it.
void run_as_a_rank(const std::function<void(RankContext&)>& body) {
  const LaunchPlan plan = two_processes();
  ASSERT_TRUE(plan.this_rank) << "started by hand?";
  try {
    launch(plan, body, {});
  } catch (const Error& error) {
    std::ofstream(std::string(std::getenv("PLAIT_TEST_MARKS")) + "/" + std::to_string(plan.this_rank->rank)) << error.what();
    std::_Exit(3);
  }
}

class WatchdogProcesses : public testing::Test {
 protected:
  void run(const plait::test::ChildProcess& body) {
    const auto start = Clock::now();
    const int status = launch(two_processes(), [](RankContext&) { FAIL() << "the parent ran a body"; }, body.arguments());
    EXPECT_EQ(status, 3);
    EXPECT_LT(Clock::now() - start, std::chrono::duration<double>(timeout_s + margin_s));
    EXPECT_TRUE(std::filesystem::is_empty(temporary_.path()));
  }
  std::string said_by(int rank) const { return contents(marks_.path() + "/" + std::to_string(rank)); }

 private:
  plait::test::TemporaryDirectory marks_, temporary_;
  EnvironmentVariable marks_variable_{"PLAIT_TEST_MARKS", marks_.path()}, temporary_variable_{"TMPDIR", temporary_.path()};
};

const plait::test::ChildProcess lost_message_body("WatchdogLostMessage", [] {
  run_as_a_rank([](RankContext& rank) { train_over(rank, lost_message); });
});

TEST_F(WatchdogProcesses, ALostMessageIsToldFromOneThatIsNotSent) {
  run(lost_message_body);
  expect_lost_message(said_by(0));
  EXPECT_THAT(said_by(1),
              AllOf(HasSubstr("was lost: 8 were sent, 7 came"), HasSubstr("(rank 0 tells more)"), Not(HasSubstr("\n"))));
}

const plait::test::ChildProcess data_gone("WatchdogDataGone", [] {
  run_as_a_rank([](RankContext& rank) {
    FlawedRank flawed(two_stages(timeout_s), rank, 0);
    FlawedBatches batches(flawed.batches, rank.rank == 1 ? 6 : 1000, [] { throw Error("the text is not there any more"); });
    flawed.session.run([&] {
      for (int step = 0; step < 10; ++step) flawed.step(batches);
    });
  });
});

TEST_F(WatchdogProcesses, ARanksOwnErrorIsTheReasonOnAllRanks) {
  run(data_gone);
  EXPECT_EQ(said_by(1), "rank 1: the text is not there any more");
  EXPECT_EQ(said_by(0), "rank 0: the run cannot go on: rank 1 failed: the text is not there any more");
}

// Threads cannot be ended from outside: the process has to go.
const plait::test::ChildProcess thread_hangs("WatchdogThreadHangs", [] {
  launch(two_threads(DeviceKind::host),
         [](RankContext& rank) {
           FlawedRank flawed(two_stages(timeout_s), rank, 0);
           FlawedBatches batches(flawed.batches, rank.rank == 1 ? 6 : 1000, [] {
             for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
           });
           flawed.session.run([&] {
             for (int step = 0; step < 10; ++step) flawed.step(batches);
           });
         },
         {});
});

TEST(WatchdogHang, AThreadThatHangsIsNamedAndGoesWithItsProcess) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::string command = program;
  const std::vector<std::string> arguments = thread_hangs.arguments();  // the first stands for the program
  for (std::size_t n = 1; n < arguments.size(); ++n) command += " " + arguments[n];
  const auto start = Clock::now();
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (int c; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  const int status = ::pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << output;
  EXPECT_LT(Clock::now() - start, std::chrono::duration<double>(timeout_s + margin_s));
  EXPECT_THAT(output, HasSubstr("the run cannot go on: rank 1 has nothing to do on its device: its thread is about to enqueue "
                                "`load_batch micro-batch 2"));
  EXPECT_THAT(output, HasSubstr("it does not end by itself after that: ending the process"));
}

// --- no false alarm ---

TEST(WatchdogPatience, ASlowRankIsNotKilled) {
  const auto body = [](RankContext& rank) {
    FlawedRank slow(two_stages(10), rank, 0, milliseconds(1500));  // for each message of a step of four
    slow.session.run([&] { slow.step(); });
  };
  EXPECT_EQ(launch(two_threads(DeviceKind::host), body, {}), 0);
}

TEST(WatchdogPatience, WhatTakesLongBetweenStepsAndInAnEvaluationIsNoStandstill) {
  const auto body = [](RankContext& rank) {
    FlawedRank slow(two_stages(2), rank, 0, milliseconds(250));  // a standstill is 1.2 s
    slow.session.run([&] {
      runtime::Interpreter& interpreter = slow.session.interpreter();
      slow.step();
      interpreter.synchronize();
      // As in a checkpoint: one rank is busy with files, the other waits for it at the rendezvous.
      if (rank.rank == 1) std::this_thread::sleep_for(milliseconds(2500));
      rank.meeting("test", std::chrono::hours(1)).meet("written");
      const auto start = Clock::now();
      rank.meeting("test", std::chrono::hours(1)).meet("started");  // before either of them is held up
      interpreter.synchronize_evaluation(slow.batches, 10);
      EXPECT_GT(Clock::now() - start, milliseconds(2400)) << "too short to prove anything";
      slow.step();
    });
  };
  EXPECT_EQ(launch(two_threads(DeviceKind::host), body, {}), 0);
}

// --- a rank's own error ---

TEST(WatchdogOwnError, IsWhatIsReportedAndNotItsConsequences) {
  const auto body = [](RankContext& rank) {
    FlawedRank flawed(two_stages(timeout_s), rank, 0);
    flawed.step();
    if (rank.rank == 1) throw ConfigError("the text is not there any more");
    for (;;) flawed.step();
  };
  const auto start = Clock::now();
  try {
    launch(two_threads(DeviceKind::host), body, {});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "rank 1: the text is not there any more");
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace plait::launch::test
