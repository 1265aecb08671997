// `plait study` as a user runs it: points that fail, a study that is killed, points that are forced.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/device.h"
#include "plan/machine.h"
#include "program_test.h"
#include "study/rows.h"
#include "study/study_data.h"

namespace plait::app {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Processes whose command line has this text.
std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    std::ifstream file(entry.path() / "cmdline");
    std::string command;
    std::getline(file, command);  // nothing, of a process that ends meanwhile
    if (process > 0 && process != ::getpid() && command.find(text) != std::string::npos) found.push_back(process);
  }
  return found;
}

class StudyCommand : public ProgramTest {
 protected:
  // Twelve points of two ranks: three layouts by four micro-batches.
  std::string job(const std::string& more = "") {
    return write(
        "study.yaml",
        "run: {name: s, dir: " + folder.path() +
            "/studies}\nmodel: {layers: 2, hidden: 32, heads: 4, ffn: 64, vocab: 64}\n"
            "data: {tokenizer: random, sequence_length: 32}\ntrain: {steps: 3, global_batch: 16, micro_batch: 1}\n"
            "launch: {device: cpu}\nstudy:\n  axes: {launch.ranks: [2], layout: [\"pipeline=2\", \"tensor=2\", \"data=2\"], "
            "train.micro_batch: [1, 2, 4, 8]}\n  measure: {steps: 2, warmup: 1, rounds: 1}\n" +
            more);
  }
  // A study of losses on a small text.
  std::string isoflop(const std::string& train, const std::string& axes) {
    std::string text;
    for (int line = 0; line < 400; ++line) text += "line " + std::to_string(line) + ": the quick brown fox jumps\n";
    const std::string file = write("text.txt", text);
    return write("isoflop.yaml",
                 "run: {name: s, dir: " + folder.path() +
                     "/studies}\nmodel: {layers: 2, hidden: 32, heads: 4, ffn: 64}\ndata: {train: [" + file +
                     "], tokenizer: bytes, sequence_length: 16, validation_fraction: 0.2}\n"
                     "train: {global_batch: 8, micro_batch: 8, eval_batches: 1, " +
                     train +
                     "}\nlaunch: {device: cpu, ranks: 1}\ncheckpoint: {final: false}\nstudy:\n  scaling: isoflop\n  axes: {" +
                     axes + "}\n  measure: {rounds: 1}\n");
  }
  fs::path study() const { return folder.path() + "/studies/s"; }
  nlohmann::json dry_run(const std::string& more = "") {
    return json("study " + job() + " --dry-run --json " + more)["points"];
  }

  // Starts a study; its output goes to files of the test's folder.
  pid_t start(const std::vector<std::string>& arguments) {
    std::vector<std::string> words{test_paths::plait, "study"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, path("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t process = 0;
    EXPECT_EQ(::posix_spawn(&process, test_paths::plait, &actions, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return process;
  }
  static int wait_for(pid_t process) {
    int status = 0;
    ::waitpid(process, &status, 0);
    return status;
  }
  // False after a minute without.
  static bool eventually(const std::function<bool()>& condition) {
    for (int n = 0; n < 60'000; n += 5) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }
  std::size_t lines() const {
    std::ifstream file(study() / "results.jsonl");
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }
  // Every round once.
  static void expect_none_twice(const study::StudyData& data) {
    std::set<std::pair<int, int>> seen;
    for (const study::Round& round : data.rounds) EXPECT_TRUE(seen.insert({round.point, round.round}).second) << round.point;
  }
};

TEST_F(StudyCommand, OutOfMemoryAndAKilledProcessEndTheirPointsOnly) {
  const nlohmann::json points = dry_run();
  ASSERT_EQ(points.size(), 12U);
  // Between the largest and the next: one point needs more than that.
  std::vector<std::pair<double, int>> peaks;
  for (const auto& point : points) {
    const auto bytes = point["predicted"]["peak_bytes"].get<std::vector<double>>();
    peaks.emplace_back(*std::max_element(bytes.begin(), bytes.end()), point["point"].get<int>());
  }
  std::sort(peaks.rbegin(), peaks.rend());
  ASSERT_GT(peaks[0].first, peaks[1].first);
  const std::string limit = std::to_string((peaks[0].first + peaks[1].first) / 2 / (1 << 30));
  const int too_large = peaks[0].second, killed = too_large == 5 ? 6 : 5;

  const pid_t process = start({job("  prune: {fits: false}\n"), "--json", "--set", "launch.memory_gib=" + limit});
  const std::string config = (study() / "points" / std::to_string(killed) / "config.yaml").string();
  ASSERT_TRUE(eventually([&] {
    const auto found = processes_with(config);
    if (!found.empty()) ::kill(found.front(), SIGKILL);
    return !found.empty();
  }));
  EXPECT_EQ(wait_for(process), 0);

  std::ifstream output(path("out"));
  const nlohmann::json summary = nlohmann::json::parse(output, nullptr, false);
  EXPECT_EQ(summary["states"]["ok"], 10);
  const study::StudyData data = study::read_study(study());
  EXPECT_EQ(data.state_of(too_large), study::PointState::out_of_memory);
  EXPECT_THAT(data.failure_of(too_large)->message, HasSubstr("out of memory: cannot allocate"));
  EXPECT_EQ(data.state_of(killed), study::PointState::failed);
  EXPECT_EQ(data.failure_of(killed)->message, "was killed by signal 9 (Killed)");
  EXPECT_TRUE(fs::exists(study() / data.failure_of(killed)->log));
  for (const auto& row : summary["points"]) {
    if (row["state"] != "ok") continue;
    for (const char* key : {"step_ms", "tokens_per_second_per_device", "ledger", "bubble_fraction", "memory", "predicted"})
      EXPECT_TRUE(row.contains(key)) << key;
    EXPECT_GT(row["memory"]["planned_bytes"], 0);
  }
  EXPECT_GT(summary["planner"]["points"], 9);
}

TEST_F(StudyCommand, WhatIsPrunedAsTooLargeFailsWhenForced) {
  const nlohmann::json free = dry_run();
  std::vector<double> peaks;
  for (const auto& point : free) peaks.push_back(point["predicted"]["peak_bytes"][0].get<double>());
  std::sort(peaks.begin(), peaks.end());
  // Between two points that lie so far apart that one fits with what stays free, and the other not even without.
  const auto usable = [](double bytes) { return bytes / (1 - plan::free_share); };
  std::size_t fits = 3;
  for (std::size_t n = 3; n < 8; ++n) {
    if (peaks[n + 1] - usable(peaks[n]) > peaks[fits + 1] - usable(peaks[fits])) fits = n;
  }
  ASSERT_GT(peaks[fits + 1], usable(peaks[fits]));
  const std::string limit =
      " --set launch.memory_gib=" + std::to_string((usable(peaks[fits]) + peaks[fits + 1]) / 2 / (1 << 30));
  const nlohmann::json points = dry_run(limit);
  std::set<int> pruned;
  for (const auto& point : points) {
    if (point["pruned"] != "memory") continue;
    pruned.insert(point["point"].get<int>());
    EXPECT_THAT(point["because"].get<std::string>(), testing::AllOf(HasSubstr("does not fit"), HasSubstr("largest items")));
  }
  ASSERT_GE(pruned.size(), 3U);
  ASSERT_LE(pruned.size(), 9U);
  const Outcome outcome = plait("study " + job("  prune: {fits: false}\n") + limit);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  const study::StudyData data = study::read_study(study());
  for (const study::Point& point : data.points) {
    const bool was_pruned = pruned.contains(point.index);
    EXPECT_EQ(data.state_of(point.index), was_pruned ? study::PointState::out_of_memory : study::PointState::ok)
        << point.label();
  }
}

TEST_F(StudyCommand, AKilledStudyGoesOnWithoutMeasuringTwice) {
  const pid_t process = start({job()});
  ASSERT_TRUE(eventually([&] { return lines() >= 3; }));
  ::kill(process, SIGKILL);
  wait_for(process);
  EXPECT_TRUE(eventually([&] { return processes_with(study().string()).empty(); })) << "its points die with it";
  const study::StudyData before = study::read_study(study());
  const Outcome resumed = plait("study --resume " + study().string());
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  const study::StudyData data = study::read_study(study());
  expect_none_twice(data);
  ASSERT_EQ(data.rounds.size(), 12U);
  for (const study::Point& point : data.points) EXPECT_EQ(data.state_of(point.index), study::PointState::ok) << point.label();
  for (std::size_t n = 0; n < before.rounds.size(); ++n) {
    EXPECT_EQ(data.rounds[n].point, before.rounds[n].point);
    EXPECT_EQ(data.rounds[n].measured->step_ms, before.rounds[n].measured->step_ms) << "what was measured is kept as it is";
  }
  const Outcome again = plait("study --resume " + study().string());
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(study::read_study(study()).rounds.size(), 12U) << "nothing is left to measure";
}

TEST_F(StudyCommand, ASignalStopsItAndABudgetDoes) {
  const pid_t process = start({job()});
  ASSERT_TRUE(eventually([&] { return lines() >= 1; }));
  ::kill(process, SIGTERM);
  const int status = wait_for(process);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 75);
  const study::StudyData data = study::read_study(study());
  EXPECT_EQ(data.stops.back().reason, study::StopReason::interrupted);
  EXPECT_TRUE(processes_with(study().string()).empty());

  const Outcome outcome = plait("study " + job("  budget: {minutes: 0.0001}\n"));
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  const study::StudyData over = study::read_study(study().string() + "-2");
  EXPECT_EQ(over.stops.back().reason, study::StopReason::over_budget);
  EXPECT_EQ(over.state_of(0), study::PointState::over_budget);
}

TEST_F(StudyCommand, OnlyWhatIsWantedIsMeasured) {
  const Outcome outcome = plait("study " + job() + " --only 'pipeline == 2 and micro_batch <= 2' --json");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  const nlohmann::json summary = nlohmann::json::parse(outcome.output, nullptr, false);
  const int baseline = summary["baseline"];
  const bool chosen = summary["points"][baseline]["facts"]["layout"]["pipeline"] == 2 &&
                      summary["points"][baseline]["facts"]["micro_batch"] <= 2;
  EXPECT_EQ(summary["states"]["ok"], chosen ? 2 : 3) << "and the baseline, which efficiencies are relative to";
  EXPECT_EQ(summary["states"]["interrupted"], chosen ? 10 : 9) << "for --resume to go on with";
}

TEST_F(StudyCommand, DryRunListsWhatIsLeftOutAndWhy) {
  const nlohmann::json points = dry_run(
      "--set 'study.axes={launch.ranks: [1, 2], layout: [auto, \"pipeline=1\", \"pipeline=2\", \"tensor=2\", \"data=2\"], "
      "train.micro_batch: "
      "[2, 16]}' "
      "--set 'study.skip=[tensor > 1]'");
  ASSERT_EQ(points.size(), 20U);
  std::map<std::string, int> why;
  for (const auto& point : points) {
    ++why[point["pruned"].is_null() ? "measured" : point["pruned"].get<std::string>()];
    EXPECT_EQ(point["pruned"].is_null(), !point.contains("because")) << "nothing is left out without a reason";
  }
  EXPECT_EQ(why["skip"], 2);
  EXPECT_GE(why["rule"], 5) << "two ranks' layouts on one rank, and 16 sequences for each of two";
  EXPECT_GE(why["duplicate"], 1) << "on two ranks one stage is the same as data=2";
  EXPECT_FALSE(fs::exists(study())) << "nothing is written";
}

TEST_F(StudyCommand, DryRunAndSimulateListOnlyWhatIsWanted) {
  const nlohmann::json points = dry_run("--only 'pipeline == 2 and micro_batch <= 2'");
  std::size_t wanted = 0;
  for (const auto& point : points) wanted += point["facts"]["layout"]["pipeline"] == 2 && point["facts"]["micro_batch"] <= 2;
  EXPECT_EQ(wanted, 2U);
  EXPECT_LE(points.size(), 3U) << "and the baseline";
  const Outcome table = plait("study " + job() + " --dry-run --only 'pipeline == 2 and micro_batch <= 2'");
  EXPECT_THAT(table.output,
              HasSubstr(std::to_string(points.size()) + " points: " + std::to_string(points.size()) + " measured"));
  const std::string simulate = "study " + job() +
                               " --simulate --json --set 'study.axes={layout: [\"pipeline=2\", \"tensor=2\", auto]}' "
                               "--set 'study.simulate={gpus: [8], device: h200}' --set train.global_batch=64 --only ";
  const nlohmann::json simulated = json(simulate + "'pipeline == 2 and tensor == 1'")["simulated"];
  ASSERT_GE(simulated.size(), 1U);
  for (const auto& point : simulated) EXPECT_EQ(point["facts"]["layout"]["pipeline"], 2);
  EXPECT_THAT(refused(simulate + "'pipeline == 9'"), HasSubstr("holds for no point that would be simulated"));
}

TEST_F(StudyCommand, SimulatesBeyondTheMachine) {
  const nlohmann::json result = json("study " + job() +
                                     " --simulate --json --set 'study.axes={layout: [\"pipeline=2\", \"tensor=2\"]}' "
                                     "--set 'study.simulate={gpus: [8, 512], device: h200}' --set train.global_batch=1024");
  ASSERT_EQ(result["simulated"].size(), 4U);
  for (const auto& point : result["simulated"]) {
    EXPECT_EQ(point["predicted"]["from"], "nominal figures of H200");
    EXPECT_LT(point["least_ratio"].get<double>(), 1) << "the nominal figures', as nothing was measured on an H200";
    EXPECT_GT(point["most_ratio"].get<double>(), 1);
    EXPECT_EQ(point["refused"], "");
    EXPECT_GT(point["predicted"]["step_ms"], 0);
  }
  EXPECT_EQ(result["simulated"][2]["facts"]["layout"]["data"], 256);
  const nlohmann::json old = json("study " + job() + " --simulate --json --set 'study.simulate={gpus: [8], device: v100}'");
  EXPECT_THAT(old["simulated"][0]["refused"].get<std::string>(), testing::StartsWith("precision.compute=auto is bf16 on GPUs"));
}

TEST_F(StudyCommand, IsoflopPointsAreTrainingRunsThatFitReads) {
  const std::string config = isoflop("steps: 1", "parameters: [1.5e+4, 4e+4], flops: [1e+9, 2e+9]");
  const Outcome outcome = plait("study " + config);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  const study::StudyData data = study::read_study(study());
  ASSERT_EQ(data.points.size(), 4U);
  for (const study::Point& point : data.points) {
    ASSERT_EQ(data.state_of(point.index), study::PointState::ok) << point.label() << ": " << point.pruned_because;
    const study::Measurement& measured = data.measured_rounds_of(point.index).front()->measured.value();
    EXPECT_GT(measured.validation_loss.value(), 0);
    EXPECT_GT(measured.tokens.value(), 1000);
  }
  const Outcome fitted = plait("study fit " + study().string() + " --json");
  EXPECT_EQ(fitted.status, 2) << "four runs carry no law";
  EXPECT_THAT(fitted.errors, HasSubstr("there are 4 runs, of 2 sizes"));
  EXPECT_THAT(fitted.errors, testing::Not(HasSubstr("left out"))) << "all of them count";
  EXPECT_THAT(fitted.errors, testing::Not(HasSubstr("below it is a run")));
}

// Points of one size share a trunk, and come to what they would alone, bit for bit.
TEST_F(StudyCommand, IsoflopPointsOfAWsdScheduleForkOneTrunk) {
  const std::string config =
      isoflop("steps: 100, optimizer: {schedule: wsd, warmup: 5}", "parameters: [1.5e+4], flops: [4e+8, 8e+8, 16e+8]");
  const Outcome outcome = plait("study " + config);
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const study::StudyData data = study::read_study(study());
  ASSERT_EQ(data.rounds.size(), 3U);
  for (const study::Point& point : data.points) {
    ASSERT_EQ(data.state_of(point.index), study::PointState::ok) << data.failure_of(point.index)->message;
    const std::string own = (study() / "points" / std::to_string(point.index)).string();
    EXPECT_TRUE(fs::exists(own + "/run/init_from.json")) << "it is a fork";
    // The same configuration from its seed.
    const Outcome alone = plait("train " + own + "/config.yaml --set run.dir=" + folder.path() +
                                "/alone --set run.name=" + std::to_string(point.index));
    ASSERT_EQ(alone.status, 0) << alone.errors;
    std::ifstream metrics(folder.path() + "/alone/" + std::to_string(point.index) + "/metrics.jsonl");
    std::string last;
    for (std::string line; std::getline(metrics, line);) last = line;
    EXPECT_EQ(nlohmann::json::parse(last)["validation_loss"].get<double>(),
              data.measured_rounds_of(point.index).front()->measured->validation_loss.value());
  }
  std::size_t pieces = 0;
  for (const auto& entry : fs::directory_iterator(study() / "trunks" / "0")) pieces += entry.is_directory();
  EXPECT_EQ(pieces, 3U) << "each once, whatever the order of the points";
  const Outcome fitted = plait("study fit " + study().string());
  EXPECT_THAT(fitted.errors, HasSubstr("there are 3 runs")) << "the trunk's pieces are none of them";
}

TEST_F(StudyCommand, TheShippedCpuStudyIsMeasuredWholly) {
  const nlohmann::json summary =
      json("study " + std::string(test_paths::source) + "/configs/studies/cpu.yaml --json --set run.dir=" + folder.path());
  EXPECT_EQ(summary["states"]["ok"], 12);
  EXPECT_EQ(summary["states"].value("failed", 0), 0);
  EXPECT_GT(summary["planner"]["rank_correlation"], 0) << "more than a guess";
}

TEST_F(StudyCommand, RefusesWhatItCannotGoOnWith) {
  EXPECT_THAT(refused("study"), HasSubstr("give a configuration file"));
  EXPECT_THAT(refused("study --resume " + folder.path()), HasSubstr("not a study's folder"));
  EXPECT_THAT(refused("study " + job() + " --only 'pipeline ='"), HasSubstr("--only"));
  EXPECT_THAT(refused("study " + job() + " --simulate"), HasSubstr("study.simulate.gpus"));
  for (const char* how : {" --simulate", " --dry-run", ""})
    EXPECT_THAT(refused("study " + job() + how + " --set 'study.simulate={gpus: [8], device: abacus}'"),
                AllOf(HasSubstr("study.simulate.device=abacus: "), HasSubstr("known are V100")));
  EXPECT_THAT(refused("study --resume " + folder.path() + " --dry-run"), HasSubstr("--resume measures"));
  EXPECT_THAT(refused("study " + job() + " --only 'pipeline == 9'"), HasSubstr("holds for no point"));
  EXPECT_THAT(refused("study " + job() + " --only 'layout == auto'"), HasSubstr("'layout' is no key"));
  EXPECT_FALSE(fs::exists(study())) << "no folder is made for nothing";
}

TEST_F(StudyCommand, VersionNamesTheCommit) {
  const Outcome outcome = plait("--version");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, testing::MatchesRegex("plait [0-9.]+( \\(commit [0-9a-f]{12}(-dirty)?\\))?,.*\n"));
}

TEST(GpuStudyCommand, EveryRoundSaysHowTheGpusWere) {
  if (cuda_device_count() < 1) GTEST_SKIP() << "needs a GPU";
  const plait::test::TemporaryDirectory folder;
  std::ofstream(folder.path() + "/study.yaml")
      << "run: {name: s, dir: " << folder.path()
      << "}\nmodel: {layers: 2, hidden: 128, heads: 4, ffn: 512, vocab: 512}\ndata: {tokenizer: random, sequence_length: 64}\n"
         "train: {steps: 3, global_batch: 8, micro_batch: 8}\nlaunch: {device: cuda, ranks: 1}\n"
         "study: {measure: {steps: 200, warmup: 3, rounds: 1}}\n";
  const Outcome outcome = run_plait(folder.path(), "study " + folder.path() + "/study.yaml");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const study::StudyData data = study::read_study(folder.path() + "/s");
  ASSERT_EQ(data.rounds.size(), 1U);
  const auto& devices = data.rounds[0].measured.value().devices;
  ASSERT_EQ(devices.size(), 1U) << "the one that it ran on";
  EXPECT_GT(devices[0].sm_clock_mhz.value(), 100);
  EXPECT_GT(devices[0].power_w.value(), 10);
  EXPECT_GT(study::rows_of(data)[0].joules_per_token.value(), 0);
}

}  // namespace
}  // namespace plait::app
