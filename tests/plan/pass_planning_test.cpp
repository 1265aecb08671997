// Planned schedules for a machine: by its times, within its memory, reproducible.
#include "plan/pass_planning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "config/schedule_file.h"
#include "core/error_of.h"
#include "parallel/job_plan.h"
#include "parallel/proof/validator.h"
#include "plan/planner.h"
#include "plan/report.h"
#include "topology/assumed_topology.h"

namespace plait::plan {
namespace {

using testing::HasSubstr;

constexpr std::int64_t words = 2048;
constexpr double mebibyte = 1024 * 1024;

// A model whose head, on the last stage, is as large as four blocks.
constexpr const char* uneven = R"(
model: {layers: 10, hidden: 256, heads: 8, vocab: 2048, tie_embeddings: false}
data: {tokenizer: random, sequence_length: 64}
train: {steps: 1, global_batch: 12, micro_batch: 1}
parallel: {data: 1, pipeline: 4, schedule: planned}
)";

// A GPU slow enough that computing takes longer than starting it; plans may use this much memory.
Machine small_gpu(double memory_mib = 16 * 1024) {
  Machine machine{.profile = topology::nominal_profile("h200"), .calibration = {}};
  machine.profile.half_flops /= 200, machine.profile.memory_bytes_per_s /= 50;
  machine.profile.memory_bytes = (1 + 1e-12) * memory_mib * mebibyte / (1 - free_share);
  machine.profile.context_bytes = machine.profile.collectives_bytes = machine.profile.communicator_bytes = 0;
  return machine;
}

class PassPlanningTest : public testing::Test {
 protected:
  Evaluation evaluated(const std::vector<std::string>& keys, const Machine& machine = small_gpu()) {
    const Config config = parse_config(uneven, keys);
    const auto ranks = static_cast<int>(config.parallel.size[Axis::data] * config.parallel.size[Axis::tensor] *
                                        config.parallel.size[Axis::pipeline]);
    Placer placer(fabric);
    return evaluate(config, parallel::Decision{}, words, ranks,
                    {.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda}, placer);
  }
  PlannedJob planned(const std::vector<std::string>& keys = {}, const Machine& machine = small_gpu()) {
    return plan_job(parse_config(uneven, keys), parallel::Decision{}, words, 4,
                    {.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda}, {.what_if = false});
  }

  topology::Fabric fabric{topology::assume_topology(DeviceKind::cuda, "h200", 8).graph};
};

TEST_F(PassPlanningTest, IsPredictedNoSlowerThanTheNamedOnesOfTheSameStages) {
  for (const char* keys : {"parallel.pipeline=4", "parallel.pipeline=2", "parallel.stages=[4, 3, 2, 1]", "train.global_batch=2",
                           "train.global_batch=7", "parallel.recompute=full", "parallel.tensor=2", "parallel.data=2"}) {
    const double seconds = evaluated({keys}).step_seconds;
    for (const char* named : {"gpipe", "1f1b", "zb-h1"}) {
      // The tolerance covers effects that only the simulator has: compute beside communication, collectives at the end.
      EXPECT_LE(seconds, 1.01 * evaluated({keys, std::string("parallel.schedule=") + named}).step_seconds)
          << keys << ' ' << named;
    }
  }
  EXPECT_LT(evaluated({}).step_seconds, 0.98 * evaluated({"parallel.schedule=zb-h1"}).step_seconds);
}

TEST_F(PassPlanningTest, KeepsToTheMemoryThatThereIs) {
  const double ample = evaluated({}).most_bytes() / mebibyte,
               least = evaluated({"train.global_batch=1"}).most_bytes() / mebibyte;
  ASSERT_GT(ample, least + 4);
  double before = 0;  // seconds; less memory takes longer
  for (const double share : {0.9, 0.5, 0.2}) {
    const double memory = least + share * (ample - least);
    const Evaluation tight = evaluated({}, small_gpu(memory));
    EXPECT_LE(tight.most_bytes(), memory * mebibyte) << share;
    EXPECT_GE(tight.step_seconds, before) << share;
    before = tight.step_seconds;
  }
  // The fullest rank of zb-h1 needs more, so it could not run.
  const double less = least + 0.8 * (evaluated({"parallel.schedule=zb-h1"}).most_bytes() / mebibyte - least);
  EXPECT_LE(evaluated({}, small_gpu(less)).most_bytes(), less * mebibyte);
  // 1F1B does not split the backward, so it keeps fewer gradients.
  const Evaluation named = evaluated({"parallel.schedule=1f1b"});
  const Evaluation as_much = evaluated({}, small_gpu(named.most_bytes() / mebibyte));
  EXPECT_LE(as_much.most_bytes(), named.most_bytes());
  EXPECT_LE(as_much.step_seconds, 1.01 * named.step_seconds);
  EXPECT_THAT(error_of<ConfigError>([&] { planned({}, small_gpu(least / 2)); }), HasSubstr("does not fit"));
}

// With more memory, the search finds no worse passes.
TEST_F(PassPlanningTest, IsNoSlowerInMoreMemory) {
  for (const char* chunks : {"parallel.virtual_stages=1", "parallel.virtual_stages=2"}) {
    const double ample = evaluated({chunks}).most_bytes() / mebibyte,
                 least = evaluated({chunks, "train.global_batch=1"}).most_bytes() / mebibyte;
    double shortest = std::numeric_limits<double>::infinity();
    for (int step = 1; step <= 20; ++step) {
      const Evaluation tight = evaluated({chunks}, small_gpu(least + step * (ample - least) / 20));
      EXPECT_LE(tight.step_seconds, 1.02 * shortest) << chunks << ", " << step << " of 20";
      shortest = std::min(shortest, tight.step_seconds);
    }
  }
}

TEST_F(PassPlanningTest, GivesValidProgramsOfAnySize) {
  for (const char* keys : {"train.global_batch=1", "parallel.virtual_stages=2", "parallel.virtual_stages=3",
                           "parallel.tensor=2", "parallel.pipeline=7", "parallel.stages=[0, 0.5, 9.5, 0]"}) {
    const Config config = parse_config(uneven, {keys});
    const Machine machine = small_gpu();
    const auto ranks = static_cast<int>(config.parallel.size[Axis::tensor] * config.parallel.size[Axis::pipeline]);
    const auto stages = stage_plans(config, parallel::Decision{}, words, ranks,
                                    {.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda});
    EXPECT_NO_THROW(parallel::require_valid(parallel::training_programs(stages))) << keys;
    EXPECT_NO_THROW(parallel::require_valid(parallel::evaluation_programs(stages))) << keys;
  }
}

TEST_F(PassPlanningTest, APlanHoldsThePassesAndTheyRunAsTheyAre) {
  const PlannedJob job = planned(), again = planned();
  ASSERT_TRUE(job.decision.passes);
  EXPECT_EQ(job.decision.passes->text, again.decision.passes->text);
  const Machine machine = small_gpu();
  const nlohmann::json document = to_json(job, machine, {"m", "t", {}, ""});
  const auto [config, decision] = apply_choice(parse_config(uneven), document, "plan.json");
  ASSERT_TRUE(decision.passes);
  EXPECT_EQ(decision.passes->text, job.decision.passes->text);
  // On a machine of which it would not have been planned so.
  Machine other = small_gpu();
  other.profile.half_flops *= 50;
  const auto kept = stage_plans(config, decision, words, 4, {.machine = other, .fabric = &fabric, .kind = DeviceKind::cuda});
  EXPECT_EQ(kept.front().schedule.passes, job.stages.front().schedule.passes);

  const auto refusal = [&](const char* key, const nlohmann::json& value, const std::vector<std::string>& keys = {}) {
    nlohmann::json changed = document;
    changed["choice"][key] = value;
    return error_of<ConfigError>([&] {
      const parallel::DecidedConfig chosen = apply_choice(parse_config(uneven, keys), changed, "plan.json");
      stage_plans(chosen.config, chosen.decision, words, 4, {.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda});
    });
  };
  EXPECT_THAT(refusal("passes", 3), HasSubstr("'choice.passes' is 3: must be a string"));
  EXPECT_THAT(refusal("passes", "0F0,0B0\n1B0,1F0\n"), HasSubstr("deadlock"));
  EXPECT_THAT(refusal("passes", "0F0,0B0\n1F0,1B0\n"), HasSubstr("has passes of 2 ranks"));
  EXPECT_THAT(refusal("micro_batch", 2, {"train.micro_batch=auto"}), HasSubstr("has 12 micro-batches"));
  EXPECT_THAT(refusal("virtual_stages", 2, {"parallel.virtual_stages=auto"}), HasSubstr("has 4 stages"));
}

TEST_F(PassPlanningTest, IsChosenWhereItIsFaster) {
  const PlannedJob job = planned({"parallel.schedule=auto", "parallel.virtual_stages=auto"});
  EXPECT_EQ(job.best.candidate.schedule, ScheduleKind::planned) << job.best.candidate.to_string();
  ASSERT_TRUE(job.decision.passes);
  EXPECT_EQ(job.stages.front().schedule.name, "planned");
  // Without a pipeline there is nothing to list.
  EXPECT_FALSE(planned({"parallel.pipeline=1", "parallel.data=4"}).decision.passes);
}

TEST_F(PassPlanningTest, SaysWhichTimesItWentBy) {
  Machine machine = small_gpu();
  EXPECT_THAT(explanation_of(planned({}, machine), machine, {"m", "t", {}, ""}),
              testing::Contains(testing::AllOf(HasSubstr("passes listed for what they take"), HasSubstr("nominal figures"))));
  // Measured: attention that takes ten times as long forward makes other passes.
  const auto nominal = planned({}, machine).decision.passes->text;
  machine.calibration.emplace();
  machine.calibration->device = "one", machine.calibration->model = "any";
  machine.calibration->segments.push_back({.kind = model::SegmentKind::attention,
                                           .forward = 0.05,
                                           .backward_input = 0.001,
                                           .backward_weight = 0.001,
                                           .norm_forward = 1e-5,
                                           .norm_backward = 1e-5});
  const PlannedJob job = planned({}, machine);
  EXPECT_THAT(explanation_of(job, machine, {"m", "t", {}, ""}), testing::Contains(HasSubstr("segment times measured on one")));
  EXPECT_NE(job.decision.passes->text, nominal);
}

}  // namespace
}  // namespace plait::plan
