// A study under Slurm, as its scripts run it: with sbatch and srun of a cluster that is this host (tests/app/slurm).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "core/file.h"
#include "core/message.h"
#include "program_test.h"
#include "study/study_folder.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class StudyUnderSlurm : public ProgramTest {
 protected:
  // Points of one rank, and of two: those are on two nodes.
  std::string job(const std::string& measure = "rounds: 2", const std::string& more = "") {
    return write("study.yaml",
                 "run: {name: s, dir: " + folder.path() +
                     "/studies}\nmodel: {layers: 2, hidden: 32, heads: 4, ffn: 64, vocab: 64}\n"
                     "data: {tokenizer: random, sequence_length: 16}\ntrain: {steps: 3, global_batch: 4, micro_batch: 1}\n"
                     "launch: {device: cpu}\nstudy:\n  axes: {launch.ranks: [1, 2], train.micro_batch: [1, 2]}\n"
                     "  slurm: {ranks_per_node: 1}\n  measure: {steps: 2, warmup: 1, " +
                     measure + "}\n" + more);
  }
  // Of a shell whose Slurm is this host.
  Outcome shell(const std::string& command) {
    const std::string tools = std::string(test_paths::source) + "/tests/app/slurm";
    return run(folder.path(),
               "export PATH=" + shell_quoted(tools) + ":\"$PATH\" FAKE_SLURM=" + shell_quoted(folder.path()) + "; " + command);
  }
  // One step of a study, as a task of an allocation of two nodes.
  Outcome step(const std::string& arguments, const std::string& variables = "") {
    return shell("env SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURMD_NODENAME=localhost " + variables + " " + test_paths::plait +
                 " study " + arguments);
  }
  std::string prepare(const std::string& job) {
    const Outcome outcome = plait("study " + job + " --slurm " + shell_quoted(study_.string()));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.output;
  }
  void list_points() {
    const Outcome outcome = step("points " + shell_quoted(study_.string()));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
  }
  Outcome round(int number, const std::string& variables = "") {
    return step("round " + shell_quoted(study_.string()) + " " + std::to_string(number), variables);
  }
  Outcome collect() { return step("collect " + shell_quoted(study_.string())); }
  std::string text_of(const std::string& name) const { return read_text(path(name), 1 << 20); }

  static std::map<std::pair<std::string, int>, study::Outcome> rounds_of(const study::StudyData& data) {
    std::map<std::pair<std::string, int>, study::Outcome> rounds;
    for (const study::Round& round : data.rounds) {
      const std::string label = data.points.at(static_cast<std::size_t>(round.point)).label();
      EXPECT_TRUE(rounds.emplace(std::pair(label, round.round), round.outcome).second) << label << " is there twice";
    }
    return rounds;
  }
  // False after a minute without.
  static bool eventually(const std::function<bool()>& condition) {
    for (int n = 0; n < 30'000; ++n) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  std::size_t lines_of_task(int number) const {
    std::ifstream file(study::task_folder(study_, number) / "results.jsonl");
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }

  fs::path study_ = fs::path(folder.path()) / "it's a \"study\" of $HOME, 100%";
};

TEST_F(StudyUnderSlurm, SubmittedItMeasuresWhatAStudyMeasures) {
  const std::string told = prepare(job());
  EXPECT_THAT(told, AllOf(HasSubstr("next: sh "), HasSubstr("on 2 nodes of 1 ranks")));
  struct stat status{};
  ASSERT_EQ(::stat(study_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  for (const char* name : {"points.sbatch", "rounds.sbatch", "collect.sbatch", "submit.sh"})
    EXPECT_EQ(shell("sh -n " + shell_quoted((study_ / name).string())).status, 0) << name;

  const std::string command = told.substr(told.find("next: ") + 6);
  const Outcome submitted = shell(command.substr(0, command.find(", with")) + " --partition=gpu");
  EXPECT_EQ(submitted.status, 0) << submitted.errors;
  EXPECT_EQ(submitted.output, "submitted: points 1, rounds 2, collect 3\n");
  EXPECT_EQ(text_of("calls"),
            "--parsable --partition=gpu points.sbatch\n"
            "--parsable --dependency=afterok:1 --kill-on-invalid-dep=yes --partition=gpu rounds.sbatch\n"
            "--parsable --dependency=afterany:2 --partition=gpu collect.sbatch\n");
  EXPECT_EQ(text_of("status-3"), "0\n") << read_text(study_ / "collect-3.log", 1 << 20);
  EXPECT_TRUE(fs::exists(study_ / "report.html"));

  const study::StudyData data = study::read_study(study_);
  for (const study::Point& point : data.points) {
    const Config config = parse_config(point.config);
    EXPECT_EQ(config.launch.mode, point.facts->ranks == 2 ? LaunchMode::external : LaunchMode::threads) << point.label();
  }
  const std::string steps = text_of("steps");
  EXPECT_EQ(std::count(steps.begin(), steps.end(), '\n'), 4) << "two points of two ranks in two rounds";
  EXPECT_THAT(steps, HasSubstr("--nodes=2 --ntasks=2 --ntasks-per-node=1 --relative=0"));

  ASSERT_EQ(plait("study " + job()).status, 0);
  EXPECT_EQ(rounds_of(data), rounds_of(study::read_study(path("studies/s"))));

  const Outcome again = shell("sh " + shell_quoted((study_ / "submit.sh").string()));
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(text_of("steps"), steps) << "nothing is left to measure";
}

TEST_F(StudyUnderSlurm, AKilledTaskGoesOnWithoutMeasuringTwice) {
  prepare(job("rounds: 1, order: listed"));
  list_points();
  {
    std::jthread task([&] { round(1, "FAKE_HANG=1"); });  // in its third point, the first of two ranks
    ASSERT_TRUE(eventually([&] { return fs::exists(path("steps")); }));
    const std::string owner = read_text(study::task_folder(study_, 1) / "owner.lock", 1000);
    ASSERT_THAT(owner, testing::StartsWith("process "));
    ::kill(std::atoi(owner.c_str() + 8), SIGKILL);
  }
  EXPECT_TRUE(eventually([&] { return fs::exists(path("ended")); })) << "its step ends with it";
  const study::StudyData before = study::read_study(study_);
  ASSERT_EQ(before.rounds.size(), 2U);
  const Outcome requeued = round(1);
  EXPECT_EQ(requeued.status, 0) << requeued.errors;
  const study::StudyData data = study::read_study(study_);
  EXPECT_EQ(rounds_of(data).size(), 4U);
  for (std::size_t n = 0; n < before.rounds.size(); ++n) {
    EXPECT_EQ(data.rounds[n].point, before.rounds[n].point);
    EXPECT_EQ(data.rounds[n].measured->step_ms, before.rounds[n].measured->step_ms) << "what was measured is kept as it is";
  }
  EXPECT_EQ(lines_of_task(1), 5U) << "four rounds and a stop";
}

TEST_F(StudyUnderSlurm, OneTaskMeasuresARoundAndNobodyResumesMeanwhile) {
  prepare(job());
  EXPECT_THAT(refused("study collect " + shell_quoted(study_.string())), HasSubstr("points are not listed yet"));
  list_points();
  list_points();
  const study::StudyFolder task(study_, 2);
  for (const Outcome& outcome : {round(2), step("--resume " + shell_quoted(study_.string()))}) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("tasks/2 is in use"), HasSubstr("process ")));
  }
  EXPECT_EQ(round(3).status, 2) << "there are two";
  EXPECT_THAT(plait("study " + job() + " --slurm " + shell_quoted(study_.string())).errors,
              HasSubstr("must be a folder that is"));
}

TEST_F(StudyUnderSlurm, CollectNamesTheRoundsThatAreMissing) {
  prepare(job("rounds: 4"));
  list_points();
  EXPECT_EQ(round(2).status, 0);
  const Outcome collected = collect();
  EXPECT_EQ(collected.status, 75);
  EXPECT_THAT(collected.errors, AllOf(HasSubstr("missing: rounds 1, 3, 4"), HasSubstr("sbatch --array=1,3-4 rounds.sbatch")));
  EXPECT_TRUE(fs::exists(study_ / "report.html"));
  const std::string command = collected.errors.substr(collected.errors.find("cd '"));
  EXPECT_EQ(shell(command.substr(0, command.find('\n'))).status, 0);
  const Outcome complete = collect();
  EXPECT_EQ(complete.status, 0) << complete.errors;
  EXPECT_EQ(rounds_of(study::read_study(study_)).size(), 16U);
}

TEST_F(StudyUnderSlurm, ATaskOnAnotherMachineOrOutsideAnAllocationMeasuresNothing) {
  prepare(job());
  list_points();
  const Outcome outside = plait("study round " + shell_quoted(study_.string()) + " 1");
  EXPECT_EQ(outside.status, 2);
  EXPECT_THAT(outside.errors, AllOf(HasSubstr("needs 2 nodes of 1 ranks"), HasSubstr("in no allocation")));
  EXPECT_EQ(study::read_study(study_).stops.size(), 0U);
  nlohmann::ordered_json environment = nlohmann::ordered_json::parse(read_text(study_ / "environment.json", 1 << 20));
  environment["cpu"] = "Another 9000";
  write_text_file(study_ / "environment.json", environment.dump());
  const Outcome elsewhere = round(1);
  EXPECT_EQ(elsewhere.status, 2);
  EXPECT_THAT(elsewhere.errors, AllOf(HasSubstr("Another 9000"), HasSubstr("a point would not be the same")));
  EXPECT_TRUE(study::read_study(study_).rounds.empty());
}

TEST_F(StudyUnderSlurm, AStepThatHangsIsToldToEnd) {
  prepare(job("rounds: 1", "  skip: [ranks == 1, micro_batch == 2]\n  budget: {point_timeout_s: 1}\n"));
  list_points();
  const Outcome outcome = round(1, "FAKE_HANG=1");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  const study::StudyData data = study::read_study(study_);
  ASSERT_EQ(data.rounds.size(), 1U);
  EXPECT_EQ(data.rounds[0].outcome, study::Outcome::timed_out);
  EXPECT_LT(data.rounds[0].seconds, 20) << "srun ends its tasks itself";
  EXPECT_EQ(text_of("ended"), "ended\n") << "before anything was killed";
}

}  // namespace
}  // namespace plait::app
