// New runs from the weights of others (train.init_from, `plait train --init-from`).
#include "train/initial_weights.h"

#include <gmock/gmock.h>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "core/error_of.h"
#include "data/tokenizer.h"
#include "test_paths.h"
#include "train/trainer_fixture.h"

namespace plait::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class InitFrom : public TrainerTest {
 protected:
  std::vector<std::string> from(const fs::path& path, bool optimizer, std::vector<std::string> set = {}) const {
    set.push_back("train.init_from.path=" + path.string());
    if (optimizer) set.push_back("train.init_from.optimizer=true");
    return set;
  }
  fs::path at(const std::string& run, std::int64_t step) const { return checkpoint::checkpoint_directory(run_dir(run), step); }
  nlohmann::json record(const std::string& run) const { return nlohmann::json::parse(bytes(run_dir(run) / "init_from.json")); }
  // What is wrong with starting from `path`; no run directory may be left behind.
  std::string refused(const fs::path& path, bool optimizer, std::vector<std::string> set) {
    set.push_back("run.name=refused");
    const std::string text = error_of<ConfigError>([&] { train(request(from(path, optimizer, set))); });
    EXPECT_FALSE(fs::exists(run_dir("refused")));
    return text;
  }
};

struct ForkCase {
  const char* name;
  std::vector<std::string> set;
};

class InitFromLayouts : public InitFrom, public testing::WithParamInterface<ForkCase> {};

TEST_P(InitFromLayouts, WithOptimizerContinuesBitForBit) {
  const std::vector<std::string>& set = GetParam().set;
  ASSERT_EQ(train(request(set)), 0);
  auto fork = from(at("run", 3), true, set);
  fork.push_back("run.name=fork");
  ASSERT_EQ(train(request(fork)), 0);
  expect_same_state(at("run", 6), at("fork", 6));
  const auto whole = metrics(run_dir()), forked = metrics(run_dir("fork"));
  EXPECT_EQ(forked.front()["step"], 4) << "steps count on";
  EXPECT_EQ(forked.back()["loss"], whole.back()["loss"]);
  EXPECT_EQ(forked.back()["lr"], whole.back()["lr"]);
  EXPECT_EQ(forked.back()["validation_loss"], whole.back()["validation_loss"]);
  EXPECT_EQ(checkpoint::list_checkpoints(run_dir()).size(), 2u) << "the trunk is left as it was";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, InitFromLayouts,
    testing::Values(ForkCase{"serial", {"launch.ranks=1"}}, ForkCase{"zero1", {"launch.ranks=2", "parallel.zero=1"}},
                    ForkCase{"zero2_bf16_moments", {"launch.ranks=2", "parallel.zero=2", "precision.moments=bf16"}},
                    ForkCase{"tensor_pipeline", {"launch.ranks=4", "parallel.tensor=2", "parallel.pipeline=2"}}),
    [](const auto& instance) { return instance.param.name; });

TEST_F(InitFrom, WeightsAloneStartANewRun) {
  ASSERT_EQ(train(request()), 0);
  // So small a rate that no weight changes: what is written after a step are the weights it started from.
  const std::vector<std::string> still = {"train.steps=1", "train.optimizer.lr=1e-30", "train.optimizer.warmup=0",
                                          "train.optimizer.weight_decay=0", "run.name=new"};
  ASSERT_EQ(train(request(from(run_dir(), false, still))), 0);
  EXPECT_TRUE(bytes(at("run", 6) / "model.safetensors") == bytes(at("new", 1) / "model.safetensors"));
  EXPECT_EQ(metrics(run_dir("new")).front()["step"], 1);
  const double validation = metrics(run_dir()).back()["validation_loss"],
               again = metrics(run_dir("new")).back()["validation_loss"];
  EXPECT_NEAR(again, validation, 1e-6);
  EXPECT_EQ(record("new")["optimizer"], false);
  // The same weights beside other moments: the step is the same, so it began without any.
  auto once_more = from(run_dir("new"), false, still);
  once_more.push_back("run.name=again");
  ASSERT_EQ(train(request(once_more)), 0);
  expect_same_state(at("new", 1), at("again", 1));
}

TEST_F(InitFrom, MomentsMayBeOfAnotherType) {
  ASSERT_EQ(train(request({"train.steps=3"})), 0);
  const auto notes = [&](bool optimizer, const char* moments) {
    const Config config = parse_config(yaml(), from(run_dir(), optimizer, {std::string("precision.moments=") + moments}));
    return testing::PrintToString(open_initial_weights(config).notes);
  };
  EXPECT_THAT(notes(true, "bf16"),
              HasSubstr("precision.moments is bf16, and was fp32 before: moments are rounded to nearest once"));
  EXPECT_THAT(notes(true, "fp32"), Not(HasSubstr("precision.moments")));
  EXPECT_THAT(notes(false, "bf16"), Not(HasSubstr("precision.moments"))) << "none are taken";
}

TEST_F(InitFrom, AnyLayoutStartsFromAnyOther) {
  ASSERT_EQ(train(request({"launch.ranks=4", "parallel.tensor=2", "parallel.pipeline=2"})), 0);
  ASSERT_EQ(train(request(from(at("run", 3), true, {"launch.ranks=2", "parallel.zero=1", "run.name=other"}))), 0);
  EXPECT_NEAR(metrics(run_dir("other")).back()["loss"].get<double>(), metrics(run_dir()).back()["loss"].get<double>(), 1e-5);
}

// One trunk, two lengths: a fork that decays from the trunk's step equals the run that had this schedule from the start.
TEST_F(InitFrom, AForkOfAWsdTrunkEqualsTheWholeRun) {
  const std::vector<std::string> wsd = {"train.optimizer.schedule=wsd", "train.optimizer.decay_steps=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), wsd.begin(), wsd.end());
    return more;
  };
  ASSERT_EQ(train(request({"train.optimizer.schedule=constant", "train.steps=9", "run.name=trunk", "checkpoint.keep=9"})), 0);
  ASSERT_EQ(train(request(with({"train.steps=5", "run.name=whole"}))), 0);
  ASSERT_EQ(train(request(from(at("trunk", 3), true, with({"train.steps=5", "run.name=fork"})))), 0);
  expect_same_state(at("whole", 5), at("fork", 5));
}

TEST_F(InitFrom, IsRecordedWithItsLineage) {
  ASSERT_EQ(train(request()), 0);
  ASSERT_EQ(train(request(from(at("run", 3), true, {"run.name=child"}))), 0);
  ASSERT_EQ(train(request(from(run_dir("child"), false, {"run.name=grandchild", "train.steps=4"}))), 0);
  const auto child = record("child");
  EXPECT_EQ(child["checkpoint"], fs::canonical(at("run", 3)).string());
  EXPECT_EQ(child["step"], 3);
  EXPECT_EQ(child["optimizer"], true);
  EXPECT_EQ(child["digest"], checkpoint::CheckpointReader(at("run", 3)).digest());
  EXPECT_TRUE(child["lineage"].empty());
  const auto grandchild = record("grandchild");
  EXPECT_EQ(grandchild["step"], 6);
  ASSERT_EQ(grandchild["lineage"].size(), 1u);
  EXPECT_EQ(grandchild["lineage"][0]["digest"], child["digest"]);
  // The checkpoints of a run that went on know it too.
  ASSERT_EQ(train(request({"train.steps=8"}, run_dir("child"))), 0);
  EXPECT_EQ(checkpoint::CheckpointReader(at("child", 8)).state()["init_from"]["digest"], child["digest"]);
}

TEST_F(InitFrom, NamesEveryDifferenceAndTheRemedy) {
  ASSERT_EQ(train(request()), 0);
  const std::string shape = refused(run_dir(), false,
                                    {"model.layers=3", "model.tie_embeddings=false", "model.vocab=512", "model.norm=rms_norm",
                                     "data.sequence_length=32", "model.qkv_bias=false"});
  for (const char* part : {"model.layers=3: must be 2", "model.tie_embeddings=false: must be true",
                           "model.vocab=512: must be 256", "model.norm=rms_norm: must be layer_norm",
                           "model.max_sequence=32: must be 16", "model.qkv_bias=false: must be true", "step-00000006"}) {
    EXPECT_THAT(shape, HasSubstr(part));
  }
  EXPECT_THAT(shape, Not(HasSubstr("model.hidden")));
  EXPECT_THAT(refused(run_dir(), true, {"train.steps=6"}), HasSubstr("train.steps=6: must be more than 6"));
  EXPECT_THAT(refused(run_dir(), false, {"precision.compute=fp64"}), HasSubstr("precision.compute=fp64: must not be fp64"));
  EXPECT_THAT(refused(directory_ / "nothing", false, {}), HasSubstr("no such directory"));
  EXPECT_THAT(refused(run_dir(), false, {"data.tokenizer={sentencepiece: {vocab: 300}}"}),
              HasSubstr("data.tokenizer=sentencepiece: must be bytes"));
}

TEST_F(InitFrom, KeepsTheTokenizerOfTheWeights) {
  const std::vector<std::string> pieces = {"data.tokenizer={sentencepiece: {vocab: 300}}"};
  ASSERT_EQ(train(request(pieces)), 0);
  // Other text, of which another model would be trained.
  std::ofstream other(directory_ / "other.txt");
  for (int i = 0; i < 400; ++i) other << "paragraph " << i << " of a completely different document, 17 * 23 = 391\n";
  other.close();
  const std::string text = "data.train=" + (directory_ / "other.txt").string();
  ASSERT_EQ(train(request(from(run_dir(), false, {pieces[0], text, "run.name=tuned"}))), 0);
  EXPECT_TRUE(bytes(run_dir("tuned") / "tokenizer.model") == bytes(run_dir() / "tokenizer.model"));

  EXPECT_THAT(refused(run_dir(), false, {"data.tokenizer={sentencepiece: {vocab: 310}}", "model.vocab=310"}),
              HasSubstr("data.sentencepiece.vocab=310: must be 300"));
  EXPECT_THAT(refused(run_dir(), false, {"model.vocab=300"}),
              AllOf(HasSubstr("data.tokenizer=bytes"), HasSubstr("tokenizer.model")));
  fs::create_directory(directory_ / "model");
  data::train_sentencepiece({directory_ / "other.txt"}, 300)->save(directory_ / "model");
  const std::string another =
      "data.tokenizer={sentencepiece: {model: " + (directory_ / "model/tokenizer.model").string() + "}}";
  EXPECT_THAT(refused(run_dir(), false, {another}),
              AllOf(HasSubstr("data.sentencepiece.model"), HasSubstr((run_dir() / "tokenizer.model").string())));
}

TEST_F(InitFrom, ACheckpointMayLieAnywhere) {
  ASSERT_EQ(train(request()), 0);
  const fs::path copy = directory_ / "copy";
  fs::copy(at("run", 6), copy, fs::copy_options::recursive);
  ASSERT_EQ(train(request(from(copy, true, {"train.steps=8", "run.name=new"}))), 0);
  ASSERT_EQ(train(request({"train.steps=8"}, run_dir())), 0);
  expect_same_state(at("run", 8), at("new", 8));
  fs::remove(copy / "optimizer.safetensors");
  EXPECT_THAT(refused(copy, false, {}), HasSubstr("optimizer.safetensors")) << "torn";
}

TEST_F(InitFrom, OnTheCommandLineWithAndWithoutAConfiguration) {
  std::ofstream(directory_ / "config.yaml") << yaml();
  const auto plait = [&](const std::string& arguments) {
    const std::string command =
        std::string(test_paths::plait) + " train " + arguments + " > " + (directory_ / "log").string() + " 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  ASSERT_EQ(plait((directory_ / "config.yaml").string()), 0) << bytes(directory_ / "log");
  // The run's own configuration, in processes: rank 0 alone decides where they start.
  ASSERT_EQ(plait("--init-from " + at("run", 3).string() + " --with-optimizer --set launch.mode=processes"), 0)
      << bytes(directory_ / "log");
  expect_same_state(at("run", 6), at("run-2", 6));
  // A fork's own configuration does not make a fork of a fork.
  ASSERT_EQ(plait("--init-from " + run_dir("run-2").string() + " --set train.steps=2"), 0) << bytes(directory_ / "log");
  EXPECT_EQ(metrics(run_dir("run-3")).back()["step"], 2);
  ASSERT_EQ(plait((directory_ / "config.yaml").string() + " --init-from " + run_dir().string() + " --resume x"), 2);
  EXPECT_THAT(bytes(directory_ / "log"), HasSubstr("give one of the two"));
  ASSERT_EQ(plait((directory_ / "config.yaml").string() + " --with-optimizer"), 2);
  EXPECT_THAT(bytes(directory_ / "log"), HasSubstr("train.init_from.path"));
}

}  // namespace
}  // namespace plait::train
