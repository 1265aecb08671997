// A checkpoint has no layout: whatever layout loads it, and writes it again, writes the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/weights_reader.h"
#include "comm/meeting.h"
#include "core/error.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "launch/launch.h"
#include "train/batch_sources.h"
#include "train/session.h"
#include "train/training_checkpoint.h"

namespace plait::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::write_file;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* gpt = "model: {layers: 6, hidden: 32, heads: 4, vocab: 150}\n";
constexpr const char* llama =
    "model: {layers: 6, hidden: 32, heads: 8, kv_heads: 4, vocab: 150, ffn: 48, norm: rms_norm, mlp: swiglu, position: rope,"
    " bias: false, qkv_bias: true, tie_embeddings: false}\n";

Config config_of(const char* model, const std::string& parallel, int ranks) {
  return parse_config(std::string(model) +
                      "data: {tokenizer: random, sequence_length: 16}\n"
                      "train: {steps: 2, global_batch: 8, micro_batch: 1, optimizer: {lr: 1e-2}}\n"
                      "comm: {bucket_mb: 0.02}\n"
                      "launch: {device: cpu, ranks: " +
                      std::to_string(ranks) +
                      "}\n"
                      "parallel: {" +
                      parallel + "}\n");
}

struct LayoutCase {
  const char* parallel;
  int ranks;
};
constexpr LayoutCase layouts[] = {
    {"tensor: 2", 2},
    {"tensor: 4, sequence_parallel: false", 4},
    {"data: 4, zero: 1", 4},
    {"data: 4, zero: 2", 4},
    {"pipeline: 4, schedule: zb-h1", 4},
    {"pipeline: 2, schedule: interleaved, virtual_stages: 3", 2},
    {"pipeline: 2, schedule: zb-v, tensor: 2, data: 2, zero: 1", 8},
    {"pipeline: 2, tensor: 2, data: 2, zero: 2", 8},
    {"pipeline: 3, stages: [1, 5, 0]", 3},
};

class CheckpointLayouts : public test::InTemporaryDirectory, public ::testing::WithParamInterface<const char*> {
 protected:
  // Trains from the seed, or loads `from`, and saves as `name`. Returns the checkpoint's directory.
  fs::path run(const Config& config, const std::string& name, const fs::path& from = {}) {
    const fs::path run_dir = directory_ / name;
    fs::create_directories(run_dir);
    const auto body = [&](launch::RankContext& rank) {
      const auto tokenizer = data::create_tokenizer(config);
      train::Session session(config, parallel::Decision{}, tokenizer->vocab(), rank);
      session.run([&] {
        runtime::Interpreter& interpreter = session.interpreter();
        if (from.empty()) {
          interpreter.initialize(config.run.seed);
          DeviceMemory host(rank.device);
          train::TrainingBatches batches(host, session.plan(), data::open_dataset(config, *tokenizer, 150), 1,
                                         config.train.steps);
          for (std::int64_t step = 1; step <= config.train.steps; ++step) {
            interpreter.run_step(batches, train::update_settings(config, step, 1e-2));
            interpreter.synchronize_result();
          }
          interpreter.synchronize();
        } else {
          train::synchronize_load(interpreter, CheckpointReader(from));
        }
        train::synchronize_save(
            interpreter, run_dir, 2, nlohmann::ordered_json::object(), 1,
            [&](const std::string& at) { rank.meeting(name, std::chrono::seconds(60)).meet(at); }, *rank.life);
      });
    };
    EXPECT_EQ(launch::launch(launch::plan_launch(config), body, {}), 0);
    return run_dir / "checkpoints" / "step-00000002";
  }
};

TEST_P(CheckpointLayouts, EveryLayoutWritesTheBytesItWasGiven) {
  const fs::path serial = run(config_of(GetParam(), "", 1), "serial");
  fs::path previous = serial;
  for (const LayoutCase& layout : layouts) {
    // From one layout to the next, so that every one of them also reads what another has written.
    const fs::path again =
        run(config_of(GetParam(), layout.parallel, layout.ranks), "again" + std::to_string(&layout - layouts), previous);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(serial / file), read_file(again / file)) << layout.parallel << ": " << file;
    }
    previous = again;
  }
}

TEST_P(CheckpointLayouts, ALayoutsOwnCheckpointLoadsElsewhere) {
  const fs::path trained = run(config_of(GetParam(), layouts[6].parallel, layouts[6].ranks), "trained");
  const fs::path serial = run(config_of(GetParam(), "", 1), "serial", trained);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(trained / file), read_file(serial / file)) << file;
}

// Files hold moments in fp32, whatever ranks keep: bf16 ones come back as they were, others are rounded to nearest.
TEST_P(CheckpointLayouts, MomentsInBf16AreReadAndWrittenByEveryLayout) {
  const auto config = [&](const LayoutCase& layout, const char* moments) {
    Config c = config_of(GetParam(), layout.parallel, layout.ranks);
    c.precision.moments = moments;
    return c;
  };
  const fs::path wide = run(config_of(GetParam(), "", 1), "wide");
  fs::path previous = wide;
  std::string narrow;
  for (const LayoutCase& layout : {LayoutCase{"", 1}, layouts[0], layouts[2], layouts[3], layouts[6], layouts[7]}) {
    const fs::path again = run(config(layout, "bf16"), "narrow" + std::string(layout.parallel), previous);
    EXPECT_EQ(read_file(wide / "model.safetensors"), read_file(again / "model.safetensors")) << layout.parallel;
    const std::string moments = read_file(again / "optimizer.safetensors");
    if (narrow.empty()) narrow = moments;
    EXPECT_EQ(moments, narrow) << layout.parallel;
    previous = again;
  }
  EXPECT_EQ(read_file(run(config({"", 1}, "fp32"), "wide again", previous) / "optimizer.safetensors"), narrow);
  const CheckpointReader before(wide), after(previous);
  for (const model::Parameter& p : model::parameters(model::resolve_shape(config_of(GetParam(), "", 1).model, 150, 16))) {
    for (const std::string& name : {exp_avg_name(p), exp_avg_sq_name(p)}) {
      const std::int64_t count = p.stored_shape.elements();
      EXPECT_EQ(after.tensor(name).dtype, DType::f32);
      std::vector<float> a(static_cast<std::size_t>(count)), b(a);
      before.read(name, 0, count, a.data());
      after.read(name, 0, count, b.data());
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(b[i], static_cast<float>(BFloat16(a[i]))) << name << " " << i;
    }
  }
}

using TrainingCheckpoint = test::InTemporaryDirectory;

// Rank 0 fails and takes the directory away: what rank 1 then says of the directory is not the cause.
TEST_F(TrainingCheckpoint, TheOthersKnowWhatFailedBeforeTheDirectoryGoes) {
  for (int round = 0; round < 20; ++round) {
    const fs::path run_dir = directory_ / std::to_string(round);
    fs::create_directory(run_dir);
    const fs::path writing = temporary_directory(run_dir, 2);
    const Config config = config_of(gpt, "data: 2", 2);
    const auto body = [&](launch::RankContext& rank) {
      train::Session session(config, parallel::Decision{}, data::create_tokenizer(config)->vocab(), rank);
      const auto meet = [&](const std::string& at) {
        rank.meeting("fails", std::chrono::seconds(60)).meet(at);
        if (rank.rank == 0) throw DeviceError("the disk is full");
        while (fs::exists(writing)) continue;
        EXPECT_TRUE(rank.life->is_aborted()) << "round " << round;
      };
      session.run([&] {
        train::synchronize_save(session.interpreter(), run_dir, 2, nlohmann::ordered_json::object(), 1, meet, *rank.life);
      });
    };
    try {
      launch::launch(launch::plan_launch(config), body, {});
      ADD_FAILURE() << "nobody failed";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "rank 0: the disk is full");
    }
  }
}

// The input is not to blame, which is what a ConfigError would say.
TEST_F(TrainingCheckpoint, WhatCannotBeWrittenIsNoConfigError) {
  const fs::path run_dir = directory_ / "run";
  fs::create_directory(run_dir);
  write_file(run_dir / "checkpoints", "a file in the way");
  const Config config = config_of(gpt, "", 1);
  const auto body = [&](launch::RankContext& rank) {
    train::Session session(config, parallel::Decision{}, data::create_tokenizer(config)->vocab(), rank);
    session.run([&] {
      train::synchronize_save(
          session.interpreter(), run_dir, 2, nlohmann::ordered_json::object(), 1, [](const std::string&) {}, *rank.life);
    });
  };
  try {
    launch::launch(launch::plan_launch(config), body, {});
    ADD_FAILURE() << "nobody failed";
  } catch (const Error& error) {
    EXPECT_EQ(dynamic_cast<const ConfigError*>(&error), nullptr);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("cannot write the checkpoint of step 2: "), HasSubstr((run_dir / "checkpoints").string())));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CheckpointLayouts, ::testing::Values(gpt, llama),
                         [](const auto& family) { return family.param == gpt ? "gpt" : "llama"; });

}  // namespace
}  // namespace plait::checkpoint
