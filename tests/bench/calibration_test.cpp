// `plait bench calibrate` and what is done with its figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <tuple>

#include "bench/calibration_benchmark.h"
#include "bench/calibration_model.h"
#include "bench/collective_slowdown.h"
#include "core/error.h"
#include "core/index.h"
#include "core/temporary_directory.h"
#include "launch/settled_job.h"
#include "site/calibration_cache.h"
#include "site/site_planning.h"
#include "topology/import.h"
#include "topology/routes.h"
#include "topology/topology_files.h"

namespace plait::bench {
namespace {

using testing::HasSubstr;

Config tiny(const std::vector<std::string>& set = {}) {
  return parse_config(
      "model: {layers: 3, hidden: 32, heads: 4, vocab: 128}\ndata: {tokenizer: random, sequence_length: 16}\n"
      "train: {steps: 1, global_batch: 8, micro_batch: 2}\nparallel: {data: 2}\nlaunch: {device: cpu, ranks: 2}\n",
      set);
}

std::string notes;  // of the latest measured()

plan::Calibration measured(const Config& config, bool communication) {
  notes.clear();
  CalibrationRequest request{.config = config,
                             .ranks = {.ranks = 2, .device = "cpu"},
                             .tensors = {1, 2},
                             .micro_batches = {1, 4},
                             .rounds = 2,
                             .communication = communication,
                             .argv = {},
                             .note = [&](const std::string& note) { notes += note + "\n"; },
                             .progress = {}};
  return calibrate(request);
}

TEST(Calibrate, MeasuresWhatThePlannerAsksFor) {
  const plan::Calibration c = measured(tiny(), true);
  EXPECT_EQ(c.device, "CPU");
  EXPECT_EQ(c.model, site::model_key_of(tiny(), 128, DeviceKind::host));
  ASSERT_EQ(c.segments.size(), 2U * 2 * (4 + 3)) << "four kinds on a rank with the head, three on one without";
  for (const plan::SegmentMeasurement& b : c.segments) {
    EXPECT_GT(b.forward, 0);
    EXPECT_GT(b.backward_weight, 0);
    EXPECT_EQ(b.backward_input > 0, b.kind != model::SegmentKind::embedding);
    EXPECT_TRUE(b.beside_head || b.kind != model::SegmentKind::head);
  }
  ASSERT_EQ(c.collectives.size(), 3U);
  for (const plan::CollectiveMeasurement& m : c.collectives) {
    EXPECT_EQ(m.ranks, 2);
    EXPECT_GE(m.curve.points.size(), 3U);
    for (const auto& [bytes, seconds] : m.curve.points) EXPECT_GT(seconds, 0) << bytes;
  }
  ASSERT_EQ(c.messages.size(), 1U);
  EXPECT_EQ(c.messages[0].transport, "direct");
  EXPECT_EQ(c.messages[0].link, "") << "CPUs have none";
  // All-reduces of a machine that is busy with other things may be over too early, which is said.
  EXPECT_NE(c.collective_slowdown.has_value(), notes.find("compute beside collectives was not measured") != std::string::npos)
      << notes;
  EXPECT_GE(c.collective_slowdown.value_or(0), 0);
  EXPECT_GT(*c.update_seconds_per_byte, 0);
  EXPECT_FALSE(c.context_bytes.has_value()) << "of CPUs";
}

// What is not finite takes less power than a model in training does, and stops the optimizer.
TEST(CalibrationModel, HasValuesOfOrdinarySize) {
  const std::vector<std::vector<std::string>> families = {
      {},
      {"model.mlp=swiglu", "model.norm=rms_norm", "model.position=rope", "model.kv_heads=2", "model.bias=false",
       "model.qkv_bias=true", "model.tie_embeddings=true"}};
  for (const std::vector<std::string>& family : families) {
    for (const int tensor : {1, 2}) {
      for (const auto stage : {CalibrationModel::Stage::with_head, CalibrationModel::Stage::without_head}) {
        const auto model = CalibrationModel::make(tiny(family), 128, {tensor, 2, Recompute::none}, Device{}, stage);
        for (int step = 0; step < 5; ++step) {
          model->enqueue_step();
          const runtime::StepResult result = model->synchronize();
          EXPECT_FALSE(result.halted) << tensor;
          EXPECT_GT(result.grad_norm, 0.1f);
          EXPECT_LT(result.grad_norm, 1e4f);
        }
      }
    }
  }
}

// What is timed stands as it does in the middle of a step: beside the head each pass beside one of the other kind. A stage
// without it is one of a pipeline of one stage to a rank, which braids nothing.
TEST(CalibrationModel, TimesAMicroBatchThatIsBraidedOnBothSides) {
  const auto model = CalibrationModel::make(tiny(), 128, {2, 2, Recompute::none}, Device{}, CalibrationModel::Stage::with_head);
  const std::vector<parallel::Instruction>& list = model->plan().train.instructions;
  const auto reach = [&](parallel::InstructionKind kind, int micro_batch) {  // first and last instruction
    std::pair<int, int> range(-1, -1);
    for (int n = 0; n < std::ssize(list); ++n) {
      if (list[at(n)].kind != kind || list[at(n)].micro_batch != micro_batch) continue;
      if (range.first < 0) range.first = n;
      range.second = n;
    }
    return range;
  };
  const auto overlap = [](std::pair<int, int> a, std::pair<int, int> b) {
    return a.first >= 0 && b.first >= 0 && a.first < b.second && b.first < a.second;
  };
  using enum parallel::InstructionKind;
  constexpr int timed = CalibrationModel::timed_micro_batch;
  EXPECT_TRUE(overlap(reach(forward, timed), reach(backward_input, timed - 1)));
  EXPECT_TRUE(overlap(reach(backward_input, timed), reach(forward, timed + 1)));
}

TEST(CollectiveSlowdown, IsFoundWhereRanksShareTheirProcessors) {
  // More ranks than the machine has processors: what all-reduces take, the others' products lack.
  const int ranks = 2 * static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Config config = tiny({"model.hidden=64", "parallel.data=" + std::to_string(ranks), "launch.ranks=" + std::to_string(ranks)});
  config.train.global_batch = 2 * ranks;
  std::optional<double> slowdown;
  // Other work of the machine that begins or ends meanwhile can hide it.
  for (int attempt = 0; attempt < 5 && slowdown.value_or(0) <= 0.02; ++attempt) {
    slowdown = measure_collective_slowdown(
        {.config = config, .vocab = 128, .measured = {1, 2, Recompute::none}, .rounds = 3, .argv = {}},
        launch::plan_launch(config));
  }
  ASSERT_TRUE(slowdown.has_value()) << "the all-reduces were over too early";
  EXPECT_GT(*slowdown, 0.02);
}

TEST(LinkedPairs, AreOneOfEachLink) {
  const auto pairs = topology::a_pair_of_each_link(topology::import_topology(topology::test::fixture("dgx1v.txt")).graph);
  std::vector<std::tuple<std::string, int, int>> told;
  for (const topology::LinkedPair& pair : pairs) told.emplace_back(pair.link, pair.from, pair.to);
  EXPECT_THAT(told, testing::ElementsAre(std::tuple("NV1", 0, 1), std::tuple("NV2", 0, 3), std::tuple("SYS", 0, 5)));
}

TEST(Calibrate, EachRecomputationIsMeasuredWhereThePlannerMayChoose) {
  CalibrationRequest request{.config = tiny({"parallel.recompute=auto"}),
                             .ranks = {.ranks = 1, .device = "cpu"},
                             .tensors = {},
                             .micro_batches = {2},
                             .rounds = 1,
                             .communication = false,
                             .argv = {},
                             .note = [](const std::string&) {},
                             .progress = {}};
  const plan::Calibration c = calibrate(request);
  EXPECT_EQ(c.segments.size(), 3U * (4 + 3)) << "tensor 1, three ways, kinds with the head and without";
  EXPECT_TRUE(c.collectives.empty());
}

class Cache : public testing::Test {
 protected:
  Cache() { ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1); }
  ~Cache() override { ::unsetenv("XDG_CACHE_HOME"); }
  plait::test::TemporaryDirectory folder;
};

TEST_F(Cache, WhatWasMeasuredIsUsedOnThisMachineForThisModelAlone) {
  const Config config = tiny();
  EXPECT_FALSE(site::kept_calibration(config, 128, DeviceKind::host).has_value());
  plan::Calibration c = measured(config, false);
  for (plan::SegmentMeasurement& b : c.segments) b.forward = 1;  // seconds: nothing else can make a step as long
  site::save_calibration(c, site::calibration_path(c.device, c.model));
  const site::SitedPlan planned = site::plan_on_site(config, parallel::Decision{}, 128);
  EXPECT_GT(planned.job.best.step_seconds, 3);
  EXPECT_EQ(planned.context.machine, "measured on CPU, with communication by nominal figures");
  EXPECT_LT(site::plan_on_site(tiny({"model.hidden=64"}), parallel::Decision{}, 128).job.best.step_seconds, 1)
      << "another model";
  EXPECT_LT(
      site::plan_on_site(config, parallel::Decision{}, 128, {.gpus = 2, .topology = {}, .device = "h200", .calibration = {}})
          .job.best.step_seconds,
      1)
      << "another machine";
  const auto permissions = std::filesystem::status(site::calibration_path(c.device, c.model)).permissions();
  EXPECT_EQ(permissions & (std::filesystem::perms::group_all | std::filesystem::perms::others_all),
            std::filesystem::perms::none);
}

TEST_F(Cache, AFileOfAnotherModelIsRefused) {
  const std::string file = folder.path() + "/c.json";
  site::save_calibration(measured(tiny(), false), file);
  EXPECT_EQ(site::load_calibration(file).model, site::model_key_of(tiny(), 128, DeviceKind::host));
  try {
    site::plan_on_site(tiny({"model.hidden=64"}), parallel::Decision{}, 128,
                       {.gpus = 0, .topology = {}, .device = {}, .calibration = file});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("was measured for another model"));
  }
}

}  // namespace
}  // namespace plait::bench
