// What a study under Slurm asks for, and how the results of its tasks are read.
#include "study/slurm_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/run_directory.h"
#include "core/error.h"
#include "core/error_of.h"
#include "core/file.h"
#include "core/message.h"
#include "core/temporary_directory.h"
#include "site/site_planning.h"
#include "study/expansion.h"
#include "study/records.h"
#include "study/resolution.h"
#include "study/runner.h"
#include "study_files.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Config cluster(const std::string& section, const std::string& launch = "") {
  return parse_config(
      "run: {name: \"a b\"}\nmodel: {layers: 4, hidden: 32, heads: 4, vocab: 64}\ndata: {tokenizer: random, sequence_length: "
      "16}\ntrain: {steps: 3, global_batch: 48, micro_batch: 1}\n" +
      launch + "study: {" + section + "}\n");
}

TEST(SlurmShape, FollowsFromTheStudy) {
  SlurmShape shape = slurm_shape(cluster("axes: {launch.ranks: [1, 4]}, measure: {rounds: 3..10}"));
  EXPECT_EQ(shape.most_ranks, 4);
  EXPECT_EQ(shape.ranks_per_node, 4) << "half a node of eight";
  EXPECT_EQ(shape.nodes, 1);
  EXPECT_EQ(shape.points, 2);
  EXPECT_EQ(shape.minutes, 20) << "two points of 300 s";
  EXPECT_EQ(shape.rounds.most, 10);
  shape = slurm_shape(cluster("axes: {launch.ranks: [12]}, budget: {minutes: 2, point_timeout_s: 180}"));
  EXPECT_EQ(shape.ranks_per_node, 8);
  EXPECT_EQ(shape.nodes, 2);
  EXPECT_EQ(shape.minutes, 13) << "one point";
  shape = slurm_shape(cluster("axes: {launch.ranks: [8]}, slurm: {ranks_per_node: 4}"));
  EXPECT_EQ(shape.nodes, 2);
  shape = slurm_shape(cluster("axes: {launch.ranks: [16]}", "launch: {device: cpu}\n"));
  EXPECT_FALSE(shape.on_gpus);
  EXPECT_EQ(shape.nodes, 1) << "a node takes any number of ranks on CPUs";
  EXPECT_THAT(error_of<ConfigError>([] { slurm_shape(cluster("axes: {launch.ranks: [2]}, skip: [ranks == 2]")); }),
              HasSubstr("no point that could run"));
}

// On nodes of four H200.
Resolved resolved_at(int ranks, double network_gb_per_s) {
  Config study = cluster("axes: {layout: [\"tensor=2 pipeline=2\"]}");
  study.study.simulate.network_gb_per_s = network_gb_per_s;
  site::PlanningWish wish;
  wish.device = "h200", wish.runs_here = true;
  wish.network = assumed_network(study.study.simulate);
  wish.gpus_per_host = 4;
  Resolver resolver(wish, 4);
  study.launch.ranks = ranks;
  return resolver.resolve(expand(study, 4).front());
}

TEST(PointsOfSeveralNodes, AreRanksOfAnOutsideLauncherInOrder) {
  const Resolved one = resolved_at(4, 50), two = resolved_at(8, 50);
  EXPECT_EQ(one.config.value().launch.mode, LaunchMode::threads);
  EXPECT_EQ(one.config->placement.devices.size(), 4U);
  EXPECT_EQ(two.config.value().launch.mode, LaunchMode::external);
  EXPECT_EQ(two.config->launch.rendezvous, "tcp");
  EXPECT_TRUE(two.config->placement.devices.empty());
  EXPECT_EQ(two.config->launch.ranks, 8);
}

TEST(PointsOfSeveralNodes, ArePredictedWithTheNetworkBetweenThem) {
  const auto step_ms = [](int ranks, double gb_per_s) { return resolved_at(ranks, gb_per_s).prediction.value().step_ms; };
  EXPECT_DOUBLE_EQ(step_ms(4, 50), step_ms(4, 0.01));
  EXPECT_LT(1.1 * step_ms(8, 50), step_ms(8, 0.01)) << "four to a node";
}

TEST(SlurmArray, NamesRoundsAndHowManyAtATime) {
  const Config fixed = cluster("measure: {rounds: 7}"), open = cluster("measure: {rounds: 3..10}"),
               all = cluster("measure: {rounds: 3..10, until: none}");
  EXPECT_EQ(array_of(fixed, {1, 2, 3, 4, 5, 6, 7}), "1-7");
  EXPECT_EQ(array_of(fixed, {3, 5, 6}), "3,5-6");
  EXPECT_EQ(array_of(open, {1, 2, 3, 4}), "1-4%3") << "the fourth sees what three have settled";
  EXPECT_EQ(array_of(all, {1, 2, 3, 4}), "1-4");
}

TEST(SlurmScripts, AskForWholeNodesOfTheStudy) {
  const plait::test::TemporaryDirectory directory;
  const fs::path folder = fs::path(directory.path()) / "s";
  write_slurm_study(folder, cluster("axes: {launch.ranks: [2, 16]}, measure: {rounds: 3..10}"), "/opt/pl ait", "/data");
  const std::string rounds = read_text(folder / "rounds.sbatch", 1 << 20);
  for (const char* option : {"--job-name=a_b-rounds", "--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--exclusive",
                             "--array=1-10%3", "--time=20", "--output=rounds-%A_%a.log", "--requeue", "--signal=B:TERM@60"})
    EXPECT_THAT(rounds, HasSubstr(std::string("#SBATCH ") + option + "\n"));
  EXPECT_THAT(rounds, HasSubstr("cd /data &&\nexec '/opt/pl ait' study round " + shell_quoted(folder.string()) +
                                " \"$SLURM_ARRAY_TASK_ID\"\n"));
  EXPECT_THAT(read_text(folder / "points.sbatch", 1 << 20), AllOf(HasSubstr("--nodes=1\n"), HasSubstr("--gpus-per-node=8\n")));
  EXPECT_THAT(read_text(folder / "collect.sbatch", 1 << 20), Not(HasSubstr("gpus"))) << "nothing is simulated";
  EXPECT_EQ(checkpoint::load_run_config(folder).study.slurm.ranks_per_node, 8);
  EXPECT_THAT(error_of<ConfigError>([&] { write_slurm_study(folder, cluster("scaling: strong"), "/p", "/"); }),
              HasSubstr("empty"));
}

TEST(ShellQuoted, AShellReadsItBackAsItIs) {
  EXPECT_EQ(shell_quoted("/a/b-1.yaml"), "/a/b-1.yaml");
  for (const std::string text : {"", "a b", "it's", "\"$(x)`y`\\", "'", "-n\nnext", "*~;&|"}) {
    FILE* pipe = ::popen(("printf %s " + shell_quoted(text)).c_str(), "r");
    std::string read(100, '\0');
    read.resize(std::fread(read.data(), 1, read.size(), pipe));
    ::pclose(pipe);
    EXPECT_EQ(read, text);
  }
}

class TasksOfAStudy : public testing::Test {
 protected:
  TasksOfAStudy() {
    const Config config = test::study_config(directory_.path());
    const std::vector<Point> points = {test::point(config, 0, 1, 10), test::point(config, 1, 2, 6)};
    study_ = create_study(config, train::environment_here(), nullptr, points);
    create_private_directory(study_ / "tasks");
  }
  static Round at(Round round, const std::string& started) {
    round.started = started;
    return round;
  }
  void append(int task, const std::string& text) {
    std::ofstream(task_folder(study_, task) / "results.jsonl", std::ios::app) << text;
  }
  plait::test::TemporaryDirectory directory_;
  fs::path study_;
};

TEST_F(TasksOfAStudy, AreReadTogetherByRoundAndStart) {
  StudyFolder(study_, 3).add(at(test::round(0, 3, {12}), "t1"));
  {
    StudyFolder one(study_, 1);
    EXPECT_EQ(one.data().rounds.size(), 1U) << "what another task has finished";
    one.add(at(test::round(1, 1, {6}), "t2"));
    one.add(at(test::round(0, 1, {10}), "t3"));
    one.add(Stop{StopReason::complete, "t4"});
  }
  append(1, record_json(at(test::round(0, 1, {99}), "t5")).dump() + "\n" + "{\"record\": \"rou");
  StudyFolder(study_).add(at(test::round(1, 2, {7}), "t6"));
  const StudyData data = read_study(study_);
  std::vector<std::pair<int, int>> order;
  for (const Round& round : data.rounds) order.emplace_back(round.round, round.point);
  EXPECT_THAT(order, ElementsAre(std::pair(1, 1), std::pair(1, 0), std::pair(2, 1), std::pair(3, 0)));
  EXPECT_EQ(data.rounds[1].measured->step_ms.front(), 10) << "of two that name one round the first counts";
  EXPECT_EQ(data.stops.size(), 1U);
}

TEST_F(TasksOfAStudy, OneOwnerEachAndNoneBesideTheWhole) {
  {
    const StudyFolder first(study_, 1), second(study_, 2);
    EXPECT_THAT(error_of<ConfigError>([&] { StudyFolder(study_, 2).warning(); }), HasSubstr("tasks/2 is in use"));
    EXPECT_THAT(error_of<ConfigError>([&] { StudyFolder(study_).warning(); }), HasSubstr("tasks/1 is in use"));
  }
  const StudyFolder whole(study_);
  EXPECT_THAT(error_of<ConfigError>([&] { StudyFolder(study_, 3).warning(); }), HasSubstr("tasks/3 is in use"));
  EXPECT_THAT(error_of<ConfigError>([&] { StudyFolder(study_, 4).warning(); }), HasSubstr("must be from 1 to 3"));
}

TEST_F(TasksOfAStudy, RefuseWhatIsNotTheirs) {
  {
    const StudyFolder made(study_, 2);
  }
  append(2, record_json(test::round(0, 1, {10})).dump() + "\n");
  EXPECT_THAT(error_of<ConfigError>([&] { read_study(study_); }),
              AllOf(HasSubstr("tasks/2/results.jsonl:1"), HasSubstr("the round of its number")));
  fs::remove_all(task_folder(study_, 2));
  create_private_directory(study_ / "tasks" / "two");
  EXPECT_THAT(error_of<ConfigError>([&] { read_study(study_); }), HasSubstr("no number of a round"));
}

TEST_F(TasksOfAStudy, MissingIsWhatOtherRoundsHaveNotSettled) {
  StudyData data = read_study(study_);
  EXPECT_THAT(missing_rounds(data), ElementsAre(1, 2, 3));
  data.rounds = {test::round(0, 1, {10}), test::round(0, 3, {10}), test::round(1, 1, {6})};
  EXPECT_THAT(missing_rounds(data), ElementsAre(2, 3)) << "point 1 has one round";
  data.rounds.push_back(test::round(1, 3, {6}));
  EXPECT_THAT(missing_rounds(data), ElementsAre(2)) << "two settle nothing";
  data.rounds.back() = test::failed(1, 3, Outcome::failed, "x");
  data.rounds.push_back(test::round(0, 2, {10}));
  EXPECT_THAT(missing_rounds(data), testing::IsEmpty()) << "the failed one needs no more";
}

}  // namespace
}  // namespace plait::study
