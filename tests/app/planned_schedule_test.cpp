// parallel.schedule: planned as a user meets it: planned, drawn, verified, trained with, resumed, and the same on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "outside_ranks.h"
#include "plan/calibration.h"
#include "program_test.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;

nlohmann::json plan_of(const std::filesystem::path& run) { return nlohmann::json::parse(std::ifstream(run / "plan.json")); }

std::vector<double> losses_of(const std::filesystem::path& run) {
  std::vector<double> losses;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("loss")) losses.push_back(json["loss"]);
  }
  return losses;
}

class PlannedScheduleCommand : public ProgramTest {
 protected:
  PlannedScheduleCommand() {
    write("job.yaml",
          "run: {name: r, dir: " + folder.path() +
              "/runs}\nmodel: {layers: 3, hidden: 16, heads: 2, vocab: 64}\ndata: {tokenizer: random, sequence_length: 8}\n"
              "train: {steps: 2, global_batch: 5, micro_batch: 1}\nparallel: {data: 1, pipeline: 2, schedule: planned}\n"
              "launch: {device: cpu}\nlog: {tensorboard: false, every: 1}\nverify: {steps: 2}\n");
  }
};

TEST_F(PlannedScheduleCommand, IsShownAndDrawnWithTheTimesItWentBy) {
  const Outcome drawn = plait("plan @/job.yaml --grid");
  ASSERT_EQ(drawn.status, 0) << drawn.errors;
  EXPECT_THAT(drawn.output, AllOf(HasSubstr("schedule planned: 5 micro-batches"), HasSubstr("rank 0  F0 F1"),
                                  HasSubstr("passes listed for what they take and what memory there is, by nominal figures")));
}

TEST_F(PlannedScheduleCommand, TrainsWithThePassesThatPlanShows) {
  const nlohmann::json shown = json("plan @/job.yaml --json");
  ASSERT_TRUE(shown["choice"].contains("passes"));
  write("plan.json", shown.dump());
  ASSERT_EQ(plait("train @/job.yaml --set run.name=named --set parallel.schedule=1f1b").status, 0);
  const auto expected = losses_of(path("runs/named"));
  ASSERT_EQ(expected.size(), 2u);
  for (const char* how : {"", "--set launch.mode=processes", "--plan @/plan.json"}) {
    std::filesystem::remove_all(path("runs/r"));
    const Outcome run = plait(std::string("train @/job.yaml ") + how);
    ASSERT_EQ(run.status, 0) << how << run.errors;
    EXPECT_EQ(plan_of(path("runs/r"))["choice"]["passes"], shown["choice"]["passes"]) << how;
    EXPECT_EQ(losses_of(path("runs/r")), expected) << how;
    if (!std::string(how).starts_with("--plan")) {
      EXPECT_THAT(run.errors, HasSubstr("planned schedule: passes listed for what they take"));
    }
  }
}

TEST_F(PlannedScheduleCommand, GoesOnInAnotherLayout) {
  ASSERT_EQ(plait("train @/job.yaml --set parallel.virtual_stages=2").status, 0);
  const Outcome same = plait("train --resume @/runs/r --set train.steps=3");
  EXPECT_EQ(same.status, 0) << same.errors;
  EXPECT_THAT(same.errors, testing::Not(HasSubstr("not the one that the run was started with")));
  const Outcome other =
      plait("train --resume @/runs/r --set train.steps=4 --set parallel.pipeline=3 --set parallel.virtual_stages=1");
  EXPECT_EQ(other.status, 0) << other.errors;
  const Outcome named =
      plait("train --resume @/runs/r --set train.steps=5 --set parallel.schedule=1f1b --set parallel.virtual_stages=1");
  EXPECT_EQ(named.status, 0) << named.errors;
}

TEST_F(PlannedScheduleCommand, IsVerified) {
  const nlohmann::json report = json(
      "verify @/job.yaml --json --layout 'pipeline=2 schedule=planned' --layout 'pipeline=2 schedule=planned virtual_stages=2' "
      "--layout 'pipeline=2 tensor=2 schedule=planned recompute=full' --layout 'pipeline=4 schedule=planned stages=[0, 2.5, "
      "0.5, 0]'");
  EXPECT_EQ(report["passed"], 4) << report.dump(1);
}

TEST_F(PlannedScheduleCommand, IsChosenOfAutoAndRefusedWithZero2) {
  const nlohmann::json shown = json("plan @/job.yaml --json --set parallel.schedule=auto --set parallel.virtual_stages=auto");
  EXPECT_THAT(shown["choice"]["schedule"], testing::AnyOf("planned", "zb-h1", "zb-v", "1f1b"));
  EXPECT_THAT(refused("plan @/job.yaml --set parallel.zero=2 --set parallel.data=5"),
              HasSubstr("must be 0 or 1 with parallel.schedule=planned"));
}

// As `plait bench calibrate` writes it: a machine on which the loss takes a hundred times as long as anything else.
nlohmann::json calibration_of_slow_loss() {
  nlohmann::json segments;
  for (const char* kind : {"embedding", "attention", "mlp", "head"}) {
    nlohmann::json segment{{"kind", kind}, {"tensor", 1}, {"micro_batch", 1}, {"recompute", "none"}, {"beside_head", true}};
    for (const char* part :
         {"forward_s", "backward_input_s", "backward_weight_s", "norm_forward_s", "norm_backward_s", "loss_s"})
      segment[part] = std::string(part) == "loss_s" ? 1e-3 : 1e-5;
    segments.push_back(segment);
  }
  return {{"format", "plait-calibration"},
          {"version", plan::calibration_version},
          {"device", "CPU"},
          {"model", "hidden 16 heads 2/2x8 ffn 64 gelu layer_norm learned vocab 256 sequence 16 f32"},
          {"segments", segments},
          {"collectives", nlohmann::json::array()},
          {"messages", nlohmann::json::array()},
          {"update_seconds_per_byte", 1e-9},
          {"collective_slowdown", 0.5},
          {"communicators", nlohmann::json::array()}};
}

// What a rank computed in the traced step, in order: its first stream is that for it.
std::vector<std::string> computed_by(int rank, const std::filesystem::path& run) {
  std::vector<std::pair<double, std::string>> found;
  const auto trace = nlohmann::json::parse(std::ifstream(run / "trace.json"));
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("pid") == rank && event.value("tid", -1) == 0 && event.value("cat", "") == "compute")
      found.emplace_back(event.at("ts"), event.at("name"));
  }
  std::ranges::stable_sort(found, {}, [](const auto& event) { return event.first; });  // listed in order where times are equal
  std::vector<std::string> names;
  for (const auto& [at, name] : found) names.push_back(name);
  return names;
}

// Each would plan for the machine that it is on; only rank 0's passes count.
TEST_F(OutsideRanks, HaveThePassesOfRank0) {
  const std::string job =
      "--set parallel.pipeline=2 --set parallel.data=1 --set parallel.schedule=planned --set log.trace_steps=[2]";
  const auto cache = [&](const std::string& rank) { return "XDG_CACHE_HOME=" + (folder_ / "cache").string() + rank; };
  std::filesystem::create_directories(folder_ / "cache1" / "plait");
  std::ofstream(folder_ / "cache1" / "plait" /
                ("CPU-hidden-16-heads-2-2x8-ffn-64-gelu-layer-norm-learned-vocab-256-sequence-16-f32-v" +
                 std::to_string(plan::calibration_version) + ".json"))
      << calibration_of_slow_loss();
  const auto passes_on = [&](const std::string& rank) {
    const Outcome shown = run(folder_, "env " + cache(rank) + " " + test_paths::plait + " plan " +
                                           (folder_ / "job.yaml").string() + " --json --set launch.ranks=2 " + job);
    EXPECT_EQ(shown.status, 0) << shown.errors;
    return nlohmann::json::parse(shown.output)["choice"]["passes"];
  };
  ASSERT_NE(passes_on("0"), passes_on("1")) << "rank 1 would list others";
  const std::string launcher = "RANK={} WORLD_SIZE=2 LOCAL_RANK={} ";
  const auto order_of_rank_1 = [&](const std::string& cache_of_ranks) {
    const std::vector<Outcome> ranks = train(job, "", launcher + cache(cache_of_ranks));
    EXPECT_THAT(ranks, Each(Field("status", &Outcome::status, 0))) << ranks[0].errors << ranks[1].errors;
    EXPECT_THAT(ranks[0].errors, HasSubstr("planned schedule: passes listed for what they take"));
    EXPECT_EQ(runs(), 1u);
    std::vector<std::string> order = computed_by(1, folder_ / "a");
    std::filesystem::remove_all(folder_ / "a");
    return order;
  };
  const std::vector<std::string> expected = order_of_rank_1("0");
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(order_of_rank_1("{}"), expected);
  EXPECT_NE(order_of_rank_1("1"), expected);  // what rank 0's calibration changes
}

TEST_F(OutsideRanks, WithPlansOfOtherPassesAreRefused) {
  const std::string job = "--set parallel.pipeline=2 --set parallel.data=1 --set parallel.schedule=planned";
  const Outcome shown = run_plait(folder_.string(), "plan " + (folder_ / "job.yaml").string() + " --json " + job);
  ASSERT_EQ(shown.status, 0) << shown.errors;
  nlohmann::json plan = nlohmann::json::parse(shown.output);
  const auto give = [&](const char* rank) {
    std::filesystem::create_directories(folder_ / rank);
    std::ofstream(folder_ / rank / "plan.json") << plan;
  };
  give("rank0"), give("rank1");
  EXPECT_THAT(train("--plan plan.json " + job), Each(Field("status", &Outcome::status, 0)));
  plan["choice"]["passes"] = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";
  give("rank1");
  EXPECT_THAT(train("--plan plan.json " + job),
              Each(is_refused(AllOf(HasSubstr("parallel.schedule, its passes=XXH3"), HasSubstr("on rank 1, but XXH3")))));
  EXPECT_EQ(runs(), 1u);
}

}  // namespace
}  // namespace plait::app
