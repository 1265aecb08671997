// Whole training runs on small text: resume, layouts, launch modes, and what happens when numbers go bad.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "core/error.h"
#include "core/error_of.h"
#include "environment_variable.h"
#include "interop/trained_model.h"
#include "launch/stop_signals.h"
#include "parallel/rank_plan.h"
#include "test_paths.h"
#include "train/sampler.h"
#include "train/trainer.h"
#include "train/trainer_fixture.h"

namespace plait::train {
namespace {

TEST_F(TrainerTest, WritesWhatARunDirectoryHolds) {
  ASSERT_EQ(train(request()), 0);
  EXPECT_EQ(to_yaml(load_config((run_dir() / "config.yaml").string())), to_yaml(request().job.config));
  const auto plan = nlohmann::json::parse(bytes(run_dir() / "plan.json"));
  EXPECT_EQ(plan["layout"]["data"], 2);
  EXPECT_EQ(plan["placement"].size(), 2u);
  EXPECT_GT(plan["predicted"]["peak_bytes"][0], 0);
  std::vector<std::int64_t> steps;
  for (const auto& line : metrics(run_dir())) {
    steps.push_back(line["step"]);
    for (const char* key : {"loss", "loss_tokens", "lr", "grad_norm", "tokens_per_second", "step_ms", "data_stalled_ms",
                            "exposed_comm_ms", "peak_bytes"}) {
      EXPECT_TRUE(line.contains(key)) << key;
    }
    // The plan is the allocation.
    EXPECT_EQ(line["peak_bytes"], plan["predicted"]["peak_bytes"][0]);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 6}));
  EXPECT_TRUE(metrics(run_dir()).back().contains("validation_loss"));
  EXPECT_LT(metrics(run_dir()).back()["loss"].get<double>(), metrics(run_dir()).front()["loss"].get<double>());
  EXPECT_EQ(checkpoint::list_checkpoints(run_dir()).size(), 2u);
  EXPECT_EQ(fs::status(run_dir()).permissions() & (fs::perms::group_all | fs::perms::others_all), fs::perms::none);

  ASSERT_EQ(train(request()), 0) << "a second run of the same name";
  EXPECT_TRUE(fs::exists(run_dir("run-2") / "plan.json"));
  expect_same_state(checkpoint::checkpoint_directory(run_dir(), 6), checkpoint::checkpoint_directory(run_dir("run-2"), 6));
}

class TrainerResume : public TrainerTest, public testing::WithParamInterface<std::tuple<int, int, const char*>> {};

TEST_P(TrainerResume, EqualsTheUninterruptedRunBitForBit) {
  const std::vector<std::string> set = {"launch.ranks=" + std::to_string(std::get<0>(GetParam())),
                                        "parallel.zero=" + std::to_string(std::get<1>(GetParam())),
                                        std::string("precision.moments=") + std::get<2>(GetParam())};
  ASSERT_EQ(train(request(set)), 0);
  const fs::path copy = directory_ / "copy";
  fs::copy(checkpoint::checkpoint_directory(run_dir(), 6), copy, fs::copy_options::recursive);
  const auto uninterrupted = metrics(run_dir());
  ASSERT_EQ(train(request(set, checkpoint::checkpoint_directory(run_dir(), 3))), 0);
  expect_same_state(copy, checkpoint::checkpoint_directory(run_dir(), 6));
  const auto resumed = metrics(run_dir());
  EXPECT_EQ(resumed.back()["loss"], uninterrupted.back()["loss"]);
  EXPECT_EQ(resumed.back()["validation_loss"], uninterrupted.back()["validation_loss"]);
}

INSTANTIATE_TEST_SUITE_P(Layouts, TrainerResume,
                         testing::Combine(testing::Values(1, 2, 4), testing::Values(0, 1), testing::Values("fp32", "bf16")),
                         [](const auto& instance) {
                           return std::to_string(std::get<0>(instance.param)) + "_ranks_zero" +
                                  std::to_string(std::get<1>(instance.param)) + "_moments_" + std::get<2>(instance.param);
                         });

// Either way, at any checkpoint: what is rounded is what one update rounds.
TEST_F(TrainerTest, ARunMayGoOnWithOtherMoments) {
  for (const auto& [before, after] : {std::pair("fp32", "bf16"), {"bf16", "fp32"}}) {
    const std::string name = std::string(before) + "-" + after;
    const auto with = [&](const std::string& moments) {
      return std::vector<std::string>{"launch.ranks=2", "parallel.zero=1", "run.name=" + name, "precision.moments=" + moments};
    };
    ASSERT_EQ(train(request(with(before))), 0);
    const double whole = metrics(run_dir(name)).back()["loss"];
    testing::internal::CaptureStderr();
    const int status = train(request(with(after), checkpoint::checkpoint_directory(run_dir(name), 3)));
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::HasSubstr("precision.moments is " + std::string(after) + ", and was " + before + " before"));
    ASSERT_EQ(status, 0);
    const double changed = metrics(run_dir(name)).back()["loss"];
    EXPECT_NE(changed, whole) << name;
    EXPECT_NEAR(changed, whole, 2e-3 * whole) << name;
  }
}

// Seeds 1 to 3 came to 0.428, 0.418 and 0.385 with fp32 moments, and to 0.428, 0.418 and 0.392 with bf16 ones: other moments
// make less of a difference than other seeds.
TEST_F(TrainerTest, Bf16MomentsLearnAsMuch) {
  std::map<std::string, std::vector<double>> losses;
  for (const std::string moments : {"fp32", "bf16"}) {
    for (const int seed : {1, 2, 3}) {
      const std::string name = moments + "-" + std::to_string(seed);
      ASSERT_EQ(train(request({"launch.ranks=1", "run.name=" + name, "precision.moments=" + moments,
                               "run.seed=" + std::to_string(seed), "train.steps=200", "train.eval_every=200", "log.every=50",
                               "train.eval_batches=20", "checkpoint.every=0", "train.optimizer.beta2=0.99"})),
                0);
      losses[moments].push_back(metrics(run_dir(name)).back()["validation_loss"]);
    }
  }
  const auto mean = [](const std::vector<double>& of) { return std::accumulate(of.begin(), of.end(), 0.0) / 3; };
  const auto [least, most] = std::ranges::minmax(losses["fp32"]);
  EXPECT_LT(most, 1) << "something is learned: a guess has ln 256 = 5.5";
  EXPECT_NE(losses["bf16"], losses["fp32"]);
  EXPECT_NEAR(mean(losses["bf16"]), mean(losses["fp32"]), (most - least) / 2);
}

class TrainerStop : public TrainerTest, public testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(TrainerStop, ASignalSavesTheNextStepAndTheRunGoesOnBitForBit) {
  const std::vector<std::string> set = {"launch.ranks=" + std::to_string(std::get<0>(GetParam())),
                                        "parallel.zero=" + std::to_string(std::get<1>(GetParam())),
                                        "train.steps=60",
                                        "checkpoint.every=0",
                                        "train.eval_every=20",
                                        "log.every=1"};
  std::vector<std::string> whole = set;
  whole.push_back("run.name=whole");
  ASSERT_EQ(train(request(whole)), 0);

  {
    const std::jthread sender = stop_after(4);
    ASSERT_EQ(train(request(set)), launch::stopped_status);
  }
  const auto logged = static_cast<std::int64_t>(metrics_count());
  const auto kept = checkpoint::list_checkpoints(run_dir());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_TRUE(kept.front().good()) << kept.front().problem;
  EXPECT_GE(kept.front().step, 4);
  EXPECT_LT(kept.front().step, 60);
  EXPECT_EQ(kept.front().step, logged) << "a step that was logged is lost, or steps went on after the last that was";

  ASSERT_EQ(train(request(set, run_dir())), 0);
  expect_same_state(checkpoint::checkpoint_directory(run_dir(), 60), checkpoint::checkpoint_directory(run_dir("whole"), 60));
  EXPECT_EQ(metrics(run_dir()).back()["loss"], metrics(run_dir("whole")).back()["loss"]);
  EXPECT_EQ(metrics(run_dir()).back()["validation_loss"], metrics(run_dir("whole")).back()["validation_loss"]);
}

INSTANTIATE_TEST_SUITE_P(Layouts, TrainerStop, testing::Combine(testing::Values(1, 2, 4), testing::Values(0, 1)),
                         [](const auto& instance) {
                           return std::to_string(std::get<0>(instance.param)) + "_ranks_zero" +
                                  std::to_string(std::get<1>(instance.param));
                         });

TEST_F(TrainerStop, AnEvaluationIsCut) {
  // It would take hours.
  const TrainRequest endless = request({"train.eval_every=1", "train.eval_batches=10000"});
  std::jthread sender([&] {
    while (!fs::exists(run_dir() / "plan.json")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::kill(::getpid(), SIGUSR1);
  });
  ASSERT_EQ(train(endless), launch::stopped_status);
  EXPECT_EQ(checkpoint::list_checkpoints(run_dir()).size(), 1u);
  EXPECT_TRUE(checkpoint::list_checkpoints(run_dir()).front().good());
  EXPECT_EQ(metrics(run_dir()).size(), 1u) << "the step was logged, without what was not measured";
}

TEST_F(TrainerStop, WithNothingDoneYetNothingIsKept) {
  const launch::StopSignals signals;  // as the program makes them before it plans
  std::raise(SIGTERM);
  EXPECT_EQ(train(request()), launch::stopped_status);
  EXPECT_FALSE(fs::exists(run_dir()));
}

// A rank that others are ready for attends to a signal at its first boundary.
TEST_F(TrainerStop, BeforeTheFirstStepNoRunIsLeft) {
  const plait::test::EnvironmentVariable rank("RANK", "0"), size("WORLD_SIZE", "1"), local_rank("LOCAL_RANK", "0");
  const launch::StopSignals signals;
  std::raise(SIGTERM);
  EXPECT_EQ(train(request({"launch.mode=external", "launch.ranks=1", "launch.rendezvous=" + (directory_ / "meet").string()})),
            launch::stopped_status);
  EXPECT_FALSE(fs::exists(directory_ / "runs"));
}

TEST_F(TrainerTest, ACheckpointIsOfNoLayout) {
  ASSERT_EQ(train(request({"launch.ranks=4", "parallel.zero=1", "train.steps=3"})), 0);
  ASSERT_EQ(train(request({"launch.ranks=1", "parallel.data=1", "train.steps=3", "run.name=serial"})), 0);
  const checkpoint::CheckpointReader parallel(checkpoint::checkpoint_directory(run_dir(), 3)),
      serial(checkpoint::checkpoint_directory(run_dir("serial"), 3));
  const std::string name = "blocks.1.mlp.down.weight";
  const auto count = serial.tensor(name).elements();
  std::vector<float> a(static_cast<std::size_t>(count)), b(a);
  parallel.read(name, 0, count, a.data());
  serial.read(name, 0, count, b.data());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5);

  // Resumed on another layout without change of state: a run that has nothing left to do leaves the checkpoint alone, so ask
  // for one step and compare with the serial run's step from the serial checkpoint.
  ASSERT_EQ(train(request({"launch.ranks=2", "train.steps=4"}, run_dir())), 0);
  ASSERT_EQ(train(request({"launch.ranks=1", "parallel.data=1", "train.steps=4"}, run_dir("serial"))), 0);
  EXPECT_NEAR(metrics(run_dir()).back()["loss"].get<double>(), metrics(run_dir("serial")).back()["loss"].get<double>(), 1e-5);
}

TEST_F(TrainerTest, ProcessesComputeWhatThreadsDo) {
  ASSERT_EQ(train(request()), 0);
  const fs::path config = directory_ / "config.yaml";
  std::ofstream(config) << yaml();
  const std::string command = std::string(test_paths::plait) + " train " + config.string() +
                              " --set launch.mode=processes --set run.name=processes > " + (directory_ / "log").string() +
                              " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << bytes(directory_ / "log");
  expect_same_state(checkpoint::checkpoint_directory(run_dir(), 6), checkpoint::checkpoint_directory(run_dir("processes"), 6));
}

TEST_F(TrainerTest, ANumberThatIsNotFiniteStopsTheRunAndIsNamed) {
  try {
    train(request({"train.optimizer.lr=1e30", "train.optimizer.warmup=0", "train.clip=0"}));
    FAIL() << "trained on";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::ContainsRegex("step [2-6]: loss .*; first not finite on rank [01]: forward micro-batch 0 segment"));
    EXPECT_THAT(error.what(),
                testing::HasSubstr("Weights were left as they were before this step; this run has no checkpoint"));
  }
}

// No step comes after it that would halt.
TEST_F(TrainerTest, ALastUpdateThatRuinsTheWeightsIsNotSaved) {
  const auto ruined = [&] {
    return train(request({"train.steps=1", "train.optimizer.lr=1e30", "train.optimizer.warmup=0", "train.clip=0"}));
  };
  EXPECT_THAT(error_of<Error>(ruined),
              testing::ContainsRegex("step 1: validation loss nan: .*; this run has no checkpoint yet"));
  EXPECT_TRUE(checkpoint::list_checkpoints(run_dir()).empty());
  EXPECT_EQ(metrics(run_dir()).size(), 1u) << "the step itself was finite";
}

// Before any step: a model of others with one number that is none.
TEST_F(TrainerTest, AWeightThatIsNotFiniteIsNamed) {
  const fs::path model = directory_ / "model";
  fs::copy(fs::path(test_paths::source) / "tests/app/transformers/gpt2", model);
  {
    std::fstream file(model / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), sizeof(length));
    std::string header(length, '\0');
    file.read(header.data(), static_cast<std::streamsize>(length));
    const auto offset =
        nlohmann::json::parse(header).at("transformer.h.1.mlp.c_proj.weight").at("data_offsets").at(0).get<std::uint64_t>();
    const float bad = std::numeric_limits<float>::quiet_NaN();
    file.seekp(static_cast<std::streamoff>(sizeof(length) + length + offset + 8 * sizeof(float)));
    file.write(reinterpret_cast<const char*>(&bad), sizeof(bad));
    ASSERT_TRUE(file.good());
    std::ofstream tokens(directory_ / "some.u16.bin", std::ios::binary);
    for (int i = 0; i < 3000; ++i) tokens << static_cast<char>(i % 61) << '\0';
  }
  const fs::path job = directory_ / "job.yaml";
  std::ofstream(job) << "run: {dir: " << (directory_ / "runs").string() << "}\nmodel: {from: " << model.string()
                     << "}\ndata: {train: [" << (directory_ / "some.u16.bin").string()
                     << "], tokenizer: tokens, sequence_length: 16}\n"
                        "train: {steps: 3, global_batch: 4, micro_batch: 1}\nlaunch: {device: cpu}\n";
  for (const std::string layout : {"parallel.data=1", "parallel.data=2", "parallel.pipeline=2"}) {
    const TrainRequest start{
        launch::settle(load_config(job.string(), {"run.name=" + layout, layout}, interop::read_model_directory),
                       parallel::Decision{}),
        {},
        {}};
    EXPECT_THAT(error_of<Error>([&] { return train(start); }),
                testing::ContainsRegex("first not finite on rank [0-9]: weights: blocks.1.mlp.down.weight"))
        << layout;
  }
}

// What is in the run directory when a start is refused, or has nothing to do, is there afterwards.
TEST_F(TrainerTest, AStartThatIsRefusedLeavesTheRunAsItIs) {
  ASSERT_EQ(train(request({"log.every=1"})), 0);
  const auto contents = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(run_dir())) {
      if (entry.is_regular_file() && entry.path().extension() != ".lock") files[entry.path()] = bytes(entry.path());
    }
    return files;
  };
  const auto before = contents();
  const fs::path third = checkpoint::checkpoint_directory(run_dir(), 3);
  for (const char* const other : {"run.seed=5", "model.hidden=64", "precision.compute=fp64", "model.layers=3"}) {
    EXPECT_THROW(train(request({other}, third)), ConfigError) << other;
    EXPECT_EQ(contents(), before) << other;
  }
  EXPECT_EQ(train(request({"train.steps=3"}, third)), 0) << "there is nothing to do";
  EXPECT_EQ(contents(), before);
  EXPECT_EQ(train(request({"train.steps=5", "log.every=1"}, third)), 0);
  EXPECT_EQ(metrics(run_dir()).size(), 5u);
  EXPECT_FALSE(fs::exists(checkpoint::checkpoint_directory(run_dir(), 6))) << "set aside";
}

TEST_F(TrainerTest, AResumeOfAnotherModelIsRefusedByTheKeysThatDiffer) {
  ASSERT_EQ(train(request()), 0);
  const std::int64_t hidden = load_config((run_dir() / "config.yaml").string()).model.hidden;
  EXPECT_THAT(
      [&] { train(request({"train.steps=8", "model.hidden=" + std::to_string(2 * hidden)}, run_dir())); },
      testing::ThrowsMessage<ConfigError>(testing::AllOf(
          testing::HasSubstr("model.hidden=" + std::to_string(2 * hidden) + ": must be " + std::to_string(hidden) + ", as of "),
          testing::HasSubstr("step-00000006"), testing::Not(testing::HasSubstr("tensor '")))));
}

// No tensor's shape tells of these, and `plait eval` computes what the run was started with.
TEST_F(TrainerTest, AResumeThatComputesOtherwiseIsRefusedByTheKeysThatDiffer) {
  ASSERT_EQ(train(request({"model.position=rope"})), 0);
  EXPECT_THAT(
      [&] {
        train(request({"train.steps=8", "model.position=rope", "model.rope_base=500", "model.rope_scaling.factor=2",
                       "model.norm_epsilon=0.1", "model.window=3", "model.window_layers=[1]"},
                      run_dir()));
      },
      testing::ThrowsMessage<ConfigError>(testing::AllOf(testing::HasSubstr("model.rope_base=500: must be 10000, as of "),
                                                         testing::HasSubstr("model.rope_scaling.factor=2: must be 1, as of "),
                                                         testing::HasSubstr("model.norm_epsilon=0.1: must be 1e-05, as of "),
                                                         testing::HasSubstr("model.window=3: must be auto, as of "),
                                                         testing::HasSubstr("model.window_layers=[1]: must be [], as of "))));
}

TEST_F(TrainerTest, AResumeWithAnotherTokenizerIsRefused) {
  const std::string pieces = "data.tokenizer={sentencepiece: {vocab: 300}}";
  ASSERT_EQ(train(request({pieces})), 0);
  const auto refusal = [&](const std::string& tokenizer) {
    return error_of<ConfigError>([&] { return train(request({"train.steps=8", tokenizer}, run_dir())); });
  };
  EXPECT_THAT(refusal("data.tokenizer=bytes"), testing::HasSubstr("data.tokenizer=bytes: must be {sentencepiece: {model: "));
  EXPECT_THAT(refusal("data.tokenizer={sentencepiece: {vocab: 301}}"),
              testing::HasSubstr("data.sentencepiece.vocab=301: must be 300, as of "));
  EXPECT_EQ(train(request({"train.steps=8", pieces}, run_dir())), 0);
}

// Whether tokens that came from elsewhere are those of a text cannot be seen.
TEST_F(TrainerTest, AResumeWithTokensOfAnotherOriginIsRefused) {
  const std::vector<std::string> random = {"data.tokenizer=random", "data.train=[]", "model.vocab=256", "train.steps=8"};
  const auto refusal = [&](const std::vector<std::string>& set) {
    return error_of<ConfigError>([&] { return train(request(set, run_dir())); });
  };
  ASSERT_EQ(train(request()), 0);
  EXPECT_THAT(refusal(random),
              testing::AllOf(testing::HasSubstr("data.tokenizer=random: must be bytes, as of the run in " + run_dir().string()),
                             testing::HasSubstr("--init-from")));
  fs::remove_all(run_dir());
  ASSERT_EQ(train(request(random)), 0);
  EXPECT_THAT(refusal({"train.steps=9", "model.vocab=256"}), testing::HasSubstr("data.tokenizer=bytes: must be random"));
  std::vector<std::string> more = random;
  more.back() = "train.steps=9";
  EXPECT_EQ(train(request(more, run_dir())), 0);
}

TEST_F(TrainerTest, ATornCheckpointIsRefusedByNameAndTheOneBeforeOffered) {
  ASSERT_EQ(train(request()), 0);
  const fs::path newest = checkpoint::checkpoint_directory(run_dir(), 6) / "model.safetensors";
  fs::resize_file(newest, fs::file_size(newest) / 2);
  try {
    train(request({"train.steps=8"}, run_dir()));
    FAIL() << "resumed from half a file";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("step-00000006"));
    EXPECT_THAT(error.what(), testing::HasSubstr("step-00000003"));
  }
}

TEST_F(TrainerTest, SamplesTextFromARun) {
  ASSERT_EQ(train(request({"train.sample_tokens=5", "train.sample_prompt=the"})), 0);
  std::string text;
  SampleRequest sample_request;
  sample_request.weights = run_dir();
  sample_request.prompt = "the quick brown fox jumps over";  // longer than the context
  sample_request.tokens = 12;
  sample_request.temperature = 0;
  const auto collect = [&](const std::string& piece) { text += piece; };
  sample(sample_request, {}, collect);
  EXPECT_EQ(text.size(), sample_request.prompt.size() + 12);
  const std::string first = text;
  text.clear();
  sample(sample_request, {}, collect);
  EXPECT_EQ(text, first);
  sample_request.prompt.clear();
  EXPECT_THAT(error_of<ConfigError>([&] { sample(sample_request, {}, collect); }),
              testing::HasSubstr("--prompt: must be a token of the tokenizer at least"));
}

// Before the first step, not when the text is due.
TEST_F(TrainerTest, ASampleThatCannotBeMadeIsRefusedAtOnce) {
  const auto refusal = [&](const std::vector<std::string>& set) { return error_of<ConfigError>([&] { train(request(set)); }); };
  EXPECT_THAT(refusal({"train.sample_tokens=5", "data.tokenizer=random", "data.train=[]", "model.vocab=300"}),
              testing::HasSubstr("train.sample_tokens=5: must be 0 with data.tokenizer=random"));
  EXPECT_FALSE(fs::exists(run_dir()));
}

TEST_F(TrainerTest, OneStepIsNoSteps) {
  testing::internal::CaptureStderr();
  const int status = train(request({"train.steps=2"}));  // the first one is left out
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("mean of 1 step, of rank 0"));
  EXPECT_EQ(status, 0);
}

TEST_F(TrainerTest, AResumedRunSaysWhatOfItCanBeLost) {
  ASSERT_EQ(train(request()), 0);
  testing::internal::CaptureStderr();
  const int status = train(request({"train.steps=7", "checkpoint.every=0"}, run_dir()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("if this run is killed what it does after step 6 is lost;"));
  EXPECT_EQ(status, 0);
}

TEST_F(TrainerTest, AResumedRunStaysWhereItIsAndSaysSo) {
  ASSERT_EQ(train(request()), 0);
  const auto resumed = [&](const std::vector<std::string>& set) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(train(request(set, run_dir())), 0);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(resumed({"train.steps=7", "run.name=other"}),
              testing::HasSubstr("run.name=other have no effect: a run that is resumed stays in " + run_dir().string()));
  EXPECT_FALSE(fs::exists(run_dir("other")));
  EXPECT_THAT(resumed({"train.steps=8"}), testing::Not(testing::HasSubstr("no effect")));
}

TEST_F(TrainerTest, ASampleNeedsTheLastStepsCheckpoint) {
  const auto said = [&](const std::string& every) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(train(request({"train.sample_tokens=5", "checkpoint.final=false", "checkpoint.every=" + every})), 0);
    return testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said("4"), testing::HasSubstr("no sample (train.sample_tokens)"));
  EXPECT_THAT(said("3"), testing::HasSubstr("sample, 5 tokens after"));
}

// Two ranks that share a model train one that one of them cannot hold.
TEST_F(TrainerTest, ARunEndsWellWhereOneDeviceCannotSampleTheModel) {
  const auto shared_by = [](int ranks) {
    return std::vector<std::string>{"launch.ranks=" + std::to_string(ranks),
                                    "parallel.tensor=" + std::to_string(ranks),
                                    "parallel.data=1",
                                    "parallel.recompute=none",
                                    "model.hidden=256",
                                    "train.micro_batch=1",
                                    "train.global_batch=1",
                                    "train.sample_tokens=5"};
  };
  const auto planned_bytes = [&](int ranks) {
    const Config config = parse_config(yaml(), shared_by(ranks));
    const parallel::Layout layout = parallel::resolve_layout(config.parallel, ranks);
    return static_cast<double>(
        parallel::make_rank_plan(config, parallel::Decision{}, 256, layout, 0, DeviceKind::host).memory.total_bytes());
  };
  const double shared = planned_bytes(2), alone = planned_bytes(1);
  ASSERT_LT(1.1 * shared, alone);
  std::vector<std::string> set = shared_by(2);
  set.push_back("launch.memory_gib=" + std::to_string((shared + alone) / 2 / (1 << 30)));
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(train(request(set)), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("no sample (train.sample_tokens) by one device: "));
}

TEST_F(TrainerTest, StepsThatLearnNothingSaySo) {
  std::ofstream chats(directory_ / "asked.jsonl");
  for (int i = 0; i < 50; ++i)
    chats << R"({"messages": [{"role": "user", "content": "hello"}]})"
          << "\n";
  chats.close();
  testing::internal::CaptureStderr();
  const int status = train(request({"data.train=[" + (directory_ / "asked.jsonl").string() + "]", "data.chat_template=custom",
                                    "data.custom_template.assistant_end=\"\\n\"", "log.every=4", "train.eval_every=0"}));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 0) << said;
  for (const char* steps : {"1 of the steps up to 1:", "3 of the steps up to 4:", "2 of the steps up to 6:"})
    EXPECT_THAT(said, testing::HasSubstr("nothing was learned in " + std::string(steps) + " none of their targets counts"));
}

struct CommandCase {
  const char* arguments;
  int status;
  const char* message;
};

class CommandLine : public TrainerTest, public testing::WithParamInterface<CommandCase> {};

TEST_P(CommandLine, StatusAndMessage) {
  std::ofstream(directory_ / "bad.yaml") << "model: {preset: gpt2-124m, hiden: 3}\ntrain: {steps: -1}\n";
  const std::string command =
      "cd " + directory_.string() + " && " + test_paths::plait + " " + GetParam().arguments + " > log 2>&1";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), GetParam().status);
  EXPECT_THAT(bytes(directory_ / "log"), testing::HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CommandLine,
    testing::Values(CommandCase{"--help", 0, "train"}, CommandCase{"train --help", 0, "--resume"},
                    CommandCase{"bench step --help", 0, "--breakdown"}, CommandCase{"sample --help", 0, "--prompt"},
                    CommandCase{"data pack --help", 0, "--tokenizer"}, CommandCase{"", 2, "Usage: plait"},
                    CommandCase{"trian", 2, "trian"}, CommandCase{"train", 2, "--resume"},
                    CommandCase{"train missing.yaml", 2, "missing.yaml"}, CommandCase{"train bad.yaml", 2, "model.hidden"},
                    CommandCase{"train bad.yaml", 2, "train.steps"},
                    CommandCase{"train --resume nowhere", 2, "nowhere: no such run directory"},
                    CommandCase{"sample nowhere --prompt x", 2, "nowhere"}, CommandCase{"bench step", 2, "--model"}));

}  // namespace
}  // namespace plait::train
