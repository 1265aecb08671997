// `plait plan` and `plait train --plan` as a user runs them. What the planner decides is tested in tests/plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/device.h"
#include "environment_variable.h"
#include "plan/calibration.h"
#include "program_test.h"
#include "site/calibration_cache.h"
#include "site/devices.h"
#include "topology/topology_files.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using topology::test::fixture;

class PlanCommand : public ProgramTest {
 protected:
  PlanCommand() {
    write("job.yaml",
          "run: {name: r, dir: " + folder.path() +
              "/runs}\nmodel: {layers: 4, hidden: 32, heads: 4, vocab: 64}\ndata: {tokenizer: random, sequence_length: 16}\n"
              "train: {steps: 3, global_batch: 8, micro_batch: auto}\n"
              "parallel: {data: auto, tensor: auto, pipeline: auto, schedule: auto, virtual_stages: auto, zero: auto, "
              "recompute: auto}\n"
              "launch: {device: cpu, ranks: 2}\ncheckpoint: {final: false}\nlog: {tensorboard: false}\n");
  }
  nlohmann::json written(const std::string& name) {
    std::ifstream file(folder.path() + "/runs/r/" + name);
    return nlohmann::json::parse(file, nullptr, false);
  }
  // That the last run did what `plait plan` shows, wrote that down, and was compared with that.
  void expect_ran(const nlohmann::json& plan) {
    const nlohmann::json ran = written("plan.json"), compared = written("prediction.json")["predicted"];
    for (const char* key : {"predicted", "links", "placement_method", "alternatives", "rejected", "choice"})
      EXPECT_EQ(ran[key], plan[key]) << key;
    for (const char* key : {"step_ms", "exposed_comm_ms", "peak_bytes"})
      EXPECT_EQ(compared[key], plan["predicted"][key]) << key;
  }
};

TEST_F(PlanCommand, AConfigurationMayComeByAPipe) {
  const auto piped = [&](const std::string& arguments) {
    const Outcome outcome = run(folder.path(), "cat " + path("job.yaml") + " | " + test_paths::plait + " " + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.output;
  };
  EXPECT_EQ(piped("plan /dev/stdin --json"), plait("plan @/job.yaml --json").output);
  piped("train /dev/stdin --set train.micro_batch=1 --set launch.mode=processes");  // ranks do not read it again
  EXPECT_EQ(written("plan.json").count("choice"), 1U);
}

TEST_F(PlanCommand, PlansForMachinesThatAreNotHere) {
  const nlohmann::json plan = json("plan @/job.yaml --gpus 8 --device h200 --json");
  EXPECT_EQ(plan["placement"].size(), 8U);
  EXPECT_EQ(plan["predicted"]["peak_bytes"].size(), 8U);
  EXPECT_GT(plan["predicted"]["step_ms"], 0);
  EXPECT_THAT(plan["predicted"]["topology"].get<std::string>(), HasSubstr("assumed: 8 H200s on one NVSwitch"));
  const nlohmann::json cube = json("plan @/job.yaml --topology " + fixture("dgx1v.txt") +
                                   " --device v100 --json --set parallel.pipeline=8 --set launch.ranks=8"
                                   " --set model.layers=8 --set precision.compute=fp32");
  EXPECT_GT(cube["links"]["pipeline"]["min_gb_per_s"], 40) << "the cycle of double links";
}

TEST_F(PlanCommand, SaysWhatItChoseAndWhy) {
  const Outcome outcome = plait("plan @/job.yaml --gpus 4 --device a100");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("choice"), HasSubstr("ms a step predicted, from nominal figures of A100"),
                                    HasSubstr("next best"), HasSubstr("memory by kind"), HasSubstr("not measured: "),
                                    HasSubstr("from data sheet: products sustain 0.62 to 0.81 of it"), HasSubstr(" tokens/s, "),
                                    HasSubstr(" GPU-hours")));
  const nlohmann::json predicted = json("plan @/job.yaml --gpus 4 --device a100 --json")["predicted"];
  const double step = predicted["step_ms"];
  EXPECT_LT(predicted["interval_ms"][0], step);
  EXPECT_GT(predicted["interval_ms"][1], step);
}

TEST_F(PlanCommand, OneOfAThingIsSingular) {
  const Outcome one = plait("plan @/job.yaml --set launch.ranks=1 train.micro_batch=1 train.global_batch=1");
  EXPECT_THAT(one.output, AllOf(HasSubstr("1 rank: "), HasSubstr("1 micro-batch of 1 sequence per"), HasSubstr("1 stage,")));
  const Outcome two = plait("plan @/job.yaml --set parallel.pipeline=2 train.micro_batch=2 parallel.schedule=1f1b");
  EXPECT_THAT(two.output,
              AllOf(HasSubstr("2 ranks: "), HasSubstr("4 micro-batches of 2 sequences per"), HasSubstr("2 stages,")));
}

TEST_F(PlanCommand, APlanForGpusSaysSoWhereThereAreNone) {
  if (cuda_device_count(nullptr) > 0) GTEST_SKIP() << "there are GPUs";
  write("gpus.json", json("plan @/job.yaml --gpus 2 --device h100 --set launch.device=auto --json").dump());
  EXPECT_THAT(refused("train @/job.yaml --set launch.device=auto --plan @/gpus.json"),
              AllOf(HasSubstr("/gpus.json: is a plan for GPUs, but none can be used: "), HasSubstr("--device cpu")));
}

TEST_F(PlanCommand, NumbersAreWrittenAsPeopleWriteThem) {
  const std::string slow = " --device cpu --set train.global_batch=1048576 train.micro_batch=256 parallel.recompute=none";
  const Outcome outcome = plait("plan @/job.yaml" + slow + " parallel.pipeline=1 parallel.tensor=1");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_GT(json("plan @/job.yaml --json" + slow + " parallel.pipeline=1 parallel.tensor=1")["predicted"]["step_ms"], 1e4);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("not measured: "), testing::Not(HasSubstr("e+"))));
}

TEST_F(PlanCommand, OfManyRanksThePlacesOfAStageAreShown) {
  const Outcome outcome =
      plait("plan @/job.yaml --gpus 128 --device h200 --set launch.ranks=auto train.global_batch=128 parallel.pipeline=2" +
            std::string(" parallel.tensor=1 parallel.data=64"));
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("  0 0-63 0  "), HasSubstr("  1 0-63 0  ")));
}

TEST_F(PlanCommand, APlanRunsUnchanged) {
  const Outcome planned = plait("plan @/job.yaml --json");
  ASSERT_EQ(planned.status, 0) << planned.errors;
  write("plan.json", planned.output);
  const Outcome run = plait("train @/job.yaml --plan @/plan.json");
  ASSERT_EQ(run.status, 0) << run.errors;
  const auto choice = nlohmann::json::parse(planned.output)["choice"];
  std::ifstream file(folder.path() + "/runs/r/plan.json");
  const auto ran = nlohmann::json::parse(file);
  EXPECT_EQ(ran["choice"]["layout"], choice["layout"]);
  EXPECT_EQ(ran["choice"]["schedule"], choice["schedule"]);
  EXPECT_EQ(ran["choice"]["micro_batch"], choice["micro_batch"]);
}

TEST_F(PlanCommand, TrainingPlansByItselfAndIsHeldToAccount) {
  const Outcome run = plait("train @/job.yaml");
  ASSERT_EQ(run.status, 0) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("planned: pipeline "));
  EXPECT_THAT(run.output + run.errors,
              AllOf(HasSubstr("ms a step, measured"), HasSubstr("predicted from nominal figures of CPU core")));
  const Outcome again = plait("train @/job.yaml --set parallel.tensor=2 --set train.micro_batch=2");
  ASSERT_EQ(again.status, 0) << again.errors;
  const Outcome table = plait("plan --accuracy @/runs/r @/runs/r-2");
  EXPECT_EQ(table.status, 0) << table.errors;
  EXPECT_THAT(table.output, AllOf(HasSubstr("2 runs: step time off by"), HasSubstr("predicted to be fastest")));
  const Outcome one = plait("plan --accuracy @/runs/r");
  EXPECT_THAT(one.output, AllOf(HasSubstr("1 run: step time off by"), testing::Not(HasSubstr("fastest"))));
  const nlohmann::json summary = json("plan --json --accuracy @/runs/r @/runs/r-2");
  ASSERT_EQ(summary["runs"].size(), 2U);
  for (const auto& entry : summary["runs"]) {
    EXPECT_GT(entry["measured"]["step_ms"], 0);
    EXPECT_EQ(entry["measured"]["peak_bytes"].size(), 2U);
    EXPECT_NEAR(entry["memory_error"], 0, 0.02) << "the plan is what is allocated";
  }
}

TEST_F(PlanCommand, RankProcessesDoWhatTheirLauncherDecided) {
  const Outcome run = plait("train @/job.yaml --set launch.mode=processes");
  ASSERT_EQ(run.status, 0) << run.errors;
  const std::string said = "planned: ";
  std::size_t times = 0;
  for (std::size_t at = 0; (at = run.errors.find(said, at)) != std::string::npos; at += said.size()) ++times;
  EXPECT_EQ(times, 1U) << run.errors;
  std::ifstream file(folder.path() + "/runs/r/config.yaml");
  const std::string config((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(config.find("pipeline: auto"), std::string::npos);
  EXPECT_THAT(config, HasSubstr("mode: processes"));
  expect_ran(json("plan @/job.yaml --json"));
}

// More than one environment variable or argument of a process can hold.
TEST_F(PlanCommand, RankProcessesAreToldOfAJobOfAnySize) {
  std::ifstream given(folder.path() + "/job.yaml");
  std::string job((std::istreambuf_iterator<char>(given)), {});
  std::string files;
  for (int i = 0; i < 2000; ++i) files += (i ? ", " : "") + std::string(90, 'x') + std::to_string(i);
  job.replace(job.find("{tokenizer: random"), 1, "{train: [" + files + "], ");
  write("large.yaml", job);
  const Outcome run = plait("train @/large.yaml --set launch.mode=processes");
  ASSERT_EQ(run.status, 0) << run.errors.substr(0, 1000);
  EXPECT_GT(std::filesystem::file_size(folder.path() + "/runs/r/config.yaml"), 128U << 10);
}

TEST_F(PlanCommand, ThePlanThatWasDecidedIsTheOneThatRuns) {
  const Outcome run = plait("train @/job.yaml");
  ASSERT_EQ(run.status, 0) << run.errors;
  const nlohmann::json plan = json("plan @/job.yaml --json");
  EXPECT_GE(plan["alternatives"].size(), 1U);
  expect_ran(plan);
}

// What leaves nothing to the planner.
constexpr const char* settled =
    " --set parallel.data=1 parallel.tensor=1 parallel.zero=0 parallel.pipeline=2 parallel.schedule=1f1b"
    " parallel.virtual_stages=1 parallel.recompute=none train.micro_batch=2";

TEST_F(PlanCommand, ARunThatCannotBePredictedSaysWhy) {
  // The calibration of this machine is none.
  const plait::test::EnvironmentVariable cache("XDG_CACHE_HOME", path("cache").c_str());
  const Config config = load_config(path("job.yaml"), {});
  const std::filesystem::path kept = site::calibration_path("CPU", site::model_key_of(config, 64, DeviceKind::host));
  std::filesystem::create_directories(kept.parent_path());
  std::ofstream(kept) << "{}";
  const Outcome run = plait(std::string("train @/job.yaml") + settled);
  ASSERT_EQ(run.status, 0) << run.errors;
  EXPECT_THAT(run.output + run.errors, HasSubstr("no prediction: "));
  const nlohmann::json plan = written("plan.json");
  EXPECT_TRUE(plan.contains("predicted") && plan["predicted"].is_null());
  EXPECT_THAT(plan["explanation"].dump(), HasSubstr(kept.filename().string()));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs/r/prediction.json"));
}

TEST_F(PlanCommand, PairsOfRanksThatThereAreNotAreRefused) {
  const std::string pair = " 'comm.p2p_pairs=[0-5=host]'";
  EXPECT_THAT(refused(std::string("train @/job.yaml") + settled + pair),
              HasSubstr("comm.p2p_pairs=0-5=host: names a rank that does not exist; the job has 2 ranks"));
  EXPECT_THAT(refused("train @/job.yaml --set" + pair), HasSubstr("comm.p2p_pairs=0-5=host: names a"))
      << "also of what is open";
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs"));
}

TEST(PlacedDevice, IsTheGivenGpuOrTheOneOfTheRanksNumber) {
  Config config;
  EXPECT_EQ(site::placed_device(config, {DeviceKind::cuda, 4, ""}, 2, 4), (Device{DeviceKind::cuda, 2}));
  config.placement.devices = {3, 1, 0, 2};
  EXPECT_EQ(site::placed_device(config, {DeviceKind::cuda, 4, ""}, 2, 4), (Device{DeviceKind::cuda, 0}));
  EXPECT_EQ(site::placed_device(config, {DeviceKind::host, 0, ""}, 2, 4), (Device{DeviceKind::host, 2}));
}

TEST(PlacedDevice, SharedByAsManyRanksAsAskedForOrAsFewAsTheyNeed) {
  Config config;
  const site::DeviceChoice two_gpus{DeviceKind::cuda, 2, ""};
  config.launch.ranks_per_device = 3;
  EXPECT_EQ(site::placed_device(config, two_gpus, 2, 4), (Device{DeviceKind::cuda, 0}));
  EXPECT_EQ(site::placed_device(config, two_gpus, 3, 4), (Device{DeviceKind::cuda, 1}));
  config.launch.ranks_per_device = automatic;
  EXPECT_EQ(site::placed_device(config, two_gpus, 2, 4), (Device{DeviceKind::cuda, 1}));
  EXPECT_TRUE(site::placed_device(config, two_gpus, 2, 4).shared);
}

// A machine whose GPUs are all alike becomes one of pairs.
TEST_F(PlanCommand, PairsThatAreKeptOffTheirLinksArePlacedAround) {
  const std::string slow =
      " --set 'comm.p2p_pairs=[0-1=host, 0-3=host, 1-2=host, 2-3=host]' --set parallel.pipeline=4 --set parallel.data=1"
      " --set parallel.tensor=1 --set model.hidden=2048 --set launch.ranks=4"
      " --set data.sequence_length=512 --set parallel.schedule=1f1b --set parallel.virtual_stages=1";
  const auto gpus = [&](const std::string& strategy) {
    return json("plan @/job.yaml --gpus 4 --device h200 --json --set placement.strategy=" + strategy + slow)["choice"]["gpus"]
        .get<std::vector<int>>();
  };
  EXPECT_EQ(gpus("order"), (std::vector<int>{0, 1, 2, 3}));
  const std::vector<int> best = gpus("auto");
  // 0 and 2, 1 and 3 are the fast pairs: two of the three hops of a chain.
  const auto fast = [](int a, int b) { return (a + b) % 2 == 0; };
  EXPECT_TRUE(fast(best[0], best[1]) && fast(best[2], best[3])) << best[0] << best[1] << best[2] << best[3];
}

// A way through host memory is slower than NVLink, and no wider than the links to that memory.
TEST_F(PlanCommand, MessagesThroughHostMemoryArePlannedAsThat) {
  const auto plan = [&](const std::string& layout, const std::string& set) {
    return json(
        "plan @/job.yaml --gpus 4 --device h200 --json --set model.hidden=2048 --set launch.ranks=4"
        " --set data.sequence_length=512 --set parallel.tensor=1 --set parallel.virtual_stages=1 " +
        layout + " " + set);
  };
  const auto step = [](const nlohmann::json& of) { return of["predicted"]["step_ms"].get<double>(); };
  const std::string pipeline = "--set parallel.pipeline=4 --set parallel.data=1 --set parallel.schedule=1f1b",
                    data = "--set parallel.pipeline=1 --set parallel.data=4",
                    all_pairs = "--set 'comm.p2p_pairs=[0-1=host, 0-2=host, 0-3=host, 1-2=host, 1-3=host, 2-3=host]'";
  const nlohmann::json links = plan(pipeline, ""), by_host = plan(pipeline, "--set comm.p2p=host");
  EXPECT_GT(step(by_host), 1.01 * step(links));
  EXPECT_EQ(step(by_host), step(plan(pipeline, all_pairs)));
  EXPECT_GE(step(plan(pipeline, "--set comm.peer_access=off")), step(by_host)) << "sums of tied tables too";
  EXPECT_LE(by_host["links"]["pipeline"]["min_gb_per_s"].get<double>(), 36);
  EXPECT_EQ(step(plan(data, "--set comm.p2p=host")), step(plan(data, "--set comm.reductions=library")))
      << "collectives of the library keep their links";
  EXPECT_GT(step(plan(data, "--set comm.peer_access=off")), step(plan(data, "--set comm.reductions=library")));
}

// NCCL's files name the compute capability of each GPU.
TEST_F(PlanCommand, AFileThatNamesItsGpusIsPlannedForThem) {
  const auto file = [&](const std::string& name, const std::string& first, const std::string& second) {
    const std::string path = folder.path() + "/" + name;
    std::ofstream(path) << R"({"format": "plait-topology", "version": 1, "nodes": [)"
                        << R"({"kind": "gpu", "name": "gpu0", "index": 0, "model": ")" << first << R"("},)"
                        << R"({"kind": "gpu", "name": "gpu1", "index": 1, "model": ")" << second << R"("}],)"
                        << R"("edges": [{"a": "gpu0", "b": "gpu1", "kind": "nvlink", "lanes": 4, "gb_per_s": 80, )"
                        << R"("latency_us": 1}]})";
    return path;
  };
  const auto machine = [&](const std::string& path) {
    return json("plan @/job.yaml --gpus 2 --json --topology " + path)["predicted"]["machine"].get<std::string>();
  };
  EXPECT_THAT(machine(file("a.json", "sm80", "sm80")), AllOf(HasSubstr("A100"), Not(HasSubstr("taken for"))));
  const std::string hopper = file("h.json", "sm90", "sm90");
  EXPECT_THAT(machine(hopper), HasSubstr("H200"));
  EXPECT_THAT(plait("plan @/job.yaml --gpus 2 --topology " + hopper).output, HasSubstr("(sm90 taken for H200)"));
  const std::string mixed = file("m.json", "sm80", "sm90");
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2 --topology " + mixed), HasSubstr("several kinds (sm80, sm90): --device"));
  EXPECT_THAT(machine(mixed + " --device h100"), HasSubstr("H100"));
}

TEST_F(PlanCommand, ATopologyOfGpusIsNotThatOfARunOnCpus) {
  const Outcome run = plait("train @/job.yaml --set placement.topology=" + fixture("dgx1v.txt"));
  ASSERT_EQ(run.status, 0) << run.errors;
  std::ifstream file(folder.path() + "/runs/r/plan.json");
  const auto plan = nlohmann::json::parse(file);
  EXPECT_THAT(plan["predicted"]["machine"].get<std::string>(), HasSubstr("CPU"));
}

TEST_F(PlanCommand, WritesTheSimulatedStepAsATrace) {
  const auto shown = [&](int gpus) {
    const std::string file = folder.path() + "/trace.json",
                      fixed = " --set parallel.tensor=1 --set parallel.pipeline=2 --set train.global_batch=32";
    const Outcome outcome = plait("plan @/job.yaml --device h200 --gpus " + std::to_string(gpus) + fixed +
                                  " --set launch.ranks=" + std::to_string(gpus) + " --trace " + file);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    std::ifstream stream(file);
    const auto trace = nlohmann::json::parse(stream);
    std::set<int> processes;
    for (const auto& event : trace["traceEvents"]) processes.insert(event["pid"].get<int>());
    return processes.size();
  };
  EXPECT_EQ(shown(4), 4U);
  EXPECT_EQ(shown(32), 2U) << "one of each stage";
}

TEST_F(PlanCommand, ASinglePairTakesItsTransport) {
  const Outcome run = plait(
      "train @/job.yaml --set parallel.pipeline=2 --set parallel.schedule=1f1b --set parallel.virtual_stages=1"
      " --set 'comm.p2p_pairs=[0-1=host]'");
  ASSERT_EQ(run.status, 0) << run.errors;
  std::ifstream file(folder.path() + "/runs/r/plan.json");
  const auto plan = nlohmann::json::parse(file);
  ASSERT_EQ(plan["point_to_point"].size(), 2U);
  for (const auto& link : plan["point_to_point"]) EXPECT_EQ(link["transport"], "host");
}

TEST_F(PlanCommand, WhatTensorGroupsExchangeByIsShownWithItsReason) {
  const auto run = [&](const std::string& set) {
    const Outcome outcome = plait("train @/job.yaml --set parallel.tensor=2 --set parallel.sequence_parallel=true " + set);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome;
  };
  const nlohmann::json pair = {{0, 1}};
  const auto latest = [&](const std::string& dir) {
    std::ifstream file(folder.path() + "/runs/" + dir + "/plan.json");
    return nlohmann::json::parse(file)["exchanges"];
  };
  const Outcome by_library = run("--set run.name=a");
  const auto library = latest("a");
  EXPECT_EQ(library["by"], "library");
  EXPECT_EQ(library["groups"], pair);
  EXPECT_TRUE(library["links"].empty());
  EXPECT_THAT(by_library.output + by_library.errors,
              HasSubstr("sums and gathers among tensor-parallel ranks 0 1 go by the library: comm.exchanges=auto takes it "
                        "where not every two GPUs are joined by NVLink in one host"));
  const Outcome by_links = run("--set run.name=b --set comm.exchanges=links");
  const auto links = latest("b");
  EXPECT_EQ(links["by"], "links");
  EXPECT_EQ(links["groups"], pair);
  EXPECT_EQ(links["links"].size(), 2U) << "both directions";
  EXPECT_THAT(by_links.output + by_links.errors, HasSubstr("go by links: comm.exchanges=links asks for it"));
  const Outcome alone = plait("train @/job.yaml --set run.name=c --set parallel.tensor=1 --set comm.exchanges=links");
  EXPECT_EQ(alone.status, 0) << alone.errors;
  EXPECT_TRUE(latest("c").is_null()) << "no tensor group";
}

TEST_F(PlanCommand, APlanForADeviceKeepsTheRulesForIt) {
  const std::string narrow = " --set model.hidden=48", gloo = " --set comm.backend=gloo",
                    fp8 = " --set precision.matmul=fp8 precision.compute=fp32";
  EXPECT_EQ(plait("plan @/job.yaml" + narrow + " comm.backend=gloo").status, 0) << "on the CPUs of launch.device";
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2 --device h200" + narrow),
              AllOf(HasSubstr("model.head_dim=auto: the head width must be a multiple of 8 for bf16, not 12"),
                    HasSubstr("this plan is for GPUs")));
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2" + gloo), HasSubstr("comm.backend=gloo: must be auto or nccl"));
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2 --device h200" + fp8), HasSubstr("need precision.compute=bf16"));
  EXPECT_THAT(refused("plan @/job.yaml --device cpu --set launch.device=auto comm.mover=sm_write"),
              AllOf(HasSubstr("comm.mover=sm_write: kernels need GPUs"), HasSubstr("this plan is for CPUs")));
  // A job for GPUs is planned where there are none.
  EXPECT_EQ(plait("plan @/job.yaml --device h200 --set launch.device=cuda").status, 0);
  EXPECT_EQ(plait("plan @/job.yaml --set launch.device=cuda").status, 0);
}

TEST_F(PlanCommand, APlanDoesNotReplaceWhatTheConfigurationSays) {
  write("plan.json", plait("plan @/job.yaml --json --set parallel.pipeline=2").output);
  EXPECT_EQ(plait("train @/job.yaml --plan @/plan.json").status, 0);
  EXPECT_THAT(
      refused("train @/job.yaml --plan @/plan.json --set parallel.pipeline=1 parallel.tensor=2"),
      AllOf(HasSubstr("2 problems"), HasSubstr("parallel.pipeline=1: is 2 in "), HasSubstr("parallel.tensor=2: is 1 in "),
            HasSubstr("plan.json; to run that plan set it to auto, or else plan again")));
  EXPECT_THAT(refused("train @/job.yaml --plan @/plan.json --set 'parallel.stages=[1, 3]'"),
              AllOf(HasSubstr("parallel.stages=[1, 3]: is ["), HasSubstr("set it to []")));
  // What the planner cannot have known.
  for (const char* key :
       {"model.ffn=256", "model.vocab=128", "model.kv_heads=2", "precision.compute=fp64", "comm.overlap=false"}) {
    const std::string name = std::string(key).substr(0, std::string(key).find('='));
    EXPECT_THAT(
        refused(std::string("train @/job.yaml --plan @/plan.json --set ") + key),
        AllOf(HasSubstr("was made for another job: " + name + " is "), HasSubstr(" now, and was "), HasSubstr("; plan again")))
        << key;
  }
}

TEST_F(PlanCommand, ARunGoesOnWithAnotherPlan) {
  ASSERT_EQ(plait("train @/job.yaml --set parallel.pipeline=2 checkpoint.final=true").status, 0);
  write("plan.json", plait("plan @/job.yaml --json --set parallel.pipeline=1").output);
  const Outcome other = plait("train --resume @/runs/r --plan @/plan.json --set train.steps=4");
  EXPECT_EQ(other.status, 0) << other.errors;
  EXPECT_EQ(written("plan.json")["choice"]["layout"]["pipeline"], 1);
  EXPECT_THAT(refused("train --resume @/runs/r --plan @/plan.json --set train.steps=5 parallel.pipeline=2"),
              HasSubstr("parallel.pipeline=2: is 1 in "));
}

TEST_F(PlanCommand, RefusesWithStatus2AndAReason) {
  EXPECT_THAT(refused("plan @/job.yaml --gpus 65537"), HasSubstr("--gpus: must be a whole number from 1 to 65536, not 65537"));
  EXPECT_THAT(refused("plan"), HasSubstr("give a configuration file, or --accuracy"));
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2 --device abacus"),
              AllOf(HasSubstr("--device=abacus: "), HasSubstr("known are V100")));
  EXPECT_THAT(
      refused("plan @/job.yaml --gpus 2 --device v100"),
      AllOf(HasSubstr("precision.compute=auto"), HasSubstr("a V100 does not compute"), HasSubstr("precision.compute=fp32")));
  EXPECT_EQ(plait("plan @/job.yaml --gpus 2 --device v100 --set precision.compute=fp32").status, 0);
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2 --device a100 --set precision.matmul=fp8"),
              AllOf(HasSubstr("precision.matmul=fp8"), HasSubstr("which A100 does not"), HasSubstr("--device h100")));
  EXPECT_EQ(plait("plan @/job.yaml --gpus 2 --device h100 --set precision.matmul=fp8").status, 0);
  EXPECT_THAT(refused("plan @/job.yaml --topology nowhere.xml"), HasSubstr("nowhere.xml"));
  EXPECT_THAT(refused("plan @/job.yaml --device cpu --topology " + fixture("dgx1v.txt")),
              AllOf(HasSubstr("--topology="), HasSubstr("is of GPUs, and with --device cpu the plan is for CPUs")));
  EXPECT_THAT(refused("plan @/job.yaml --accuracy @/here"), HasSubstr("give it no configuration file"));
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2 --set launch.memory_gib=0.001"),
              HasSubstr("No number of GPUs would do: libraries take all that one has"));
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2 --calibration @/job.yaml"), HasSubstr("job.yaml: is not JSON"));
  plan::Calibration of_cpu;
  of_cpu.device = "CPU", of_cpu.model = "another", of_cpu.segments.resize(1);
  write("cpu.json", to_json(of_cpu).dump());
  EXPECT_THAT(refused("plan @/job.yaml --calibration @/cpu.json"), HasSubstr("was measured for another model: another"));
  for (const char* device : {"", " --device h100"}) {
    EXPECT_THAT(refused(std::string("plan @/job.yaml --gpus 2 --set precision.compute=fp32 --calibration @/cpu.json") + device),
                AllOf(HasSubstr("cpu.json: was measured on CPU, and this plan is for"), HasSubstr("--device")));
  }
  EXPECT_THAT(refused("bench calibrate @/job.yaml --out @/job.yaml/x"), HasSubstr("Not a directory")) << "before it measures";
  EXPECT_THAT(refused("plan @/job.yaml --gpus 2 --device h200 --set 'comm.p2p_pairs=[0-2=host]'"),
              HasSubstr("names a GPU that does not exist"));
  EXPECT_THAT(refused("plan --accuracy @/here"), HasSubstr("here/prediction.json: cannot be read"));
  std::filesystem::create_directory(path("odd"));
  write("odd/prediction.json", "[]");
  EXPECT_THAT(refused("plan --accuracy @/odd"), HasSubstr("odd/prediction.json: it is [...]: must be an object"));
  write("odd/prediction.json", "{\"layout\": 3}");
  EXPECT_THAT(refused("plan --accuracy @/odd"), HasSubstr("odd/prediction.json: 'layout' is 3: must be a string"));
  EXPECT_THAT(refused("train @/job.yaml --plan @/job.yaml"), HasSubstr("is not JSON"));
  EXPECT_THAT(refused("train @/job.yaml --plan " + write("x.json", "{}")), HasSubstr("'choice' is missing"));
  EXPECT_THAT(refused("verify @/job.yaml"), HasSubstr("is decided by `plait plan`, `plait train` and `plait bench step` only"));
}

}  // namespace
}  // namespace plait::app
