// Fine-tuning from end to end, as docs/fine-tuning.md does it: a model of transformers, chats with their loss mask, evaluation
// before and after, and the model back in transformers' form. PyTorch did the same (tests/app/finetune/make_fixture.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "program_test.h"
#include "pytorch_training.h"
#include "tensor_values.h"
#include "test_paths.h"

namespace plait::app {
namespace {

namespace fs = std::filesystem;

class FineTuning : public ProgramTest {
 protected:
  // Of the answers of all chats.
  double loss_of(const std::string& model) {
    return json("eval " + model + " --json --data " + chats + settings).at("loss").get<double>();
  }

  const fs::path fixture = fs::path(test_paths::source) / "tests/app/finetune";
  const std::string chats = (fs::path(test_paths::source) / "tests/data/chat/sums.jsonl").string();
  const nlohmann::json expected = nlohmann::json::parse(std::ifstream(fixture / "training.json"));
  const std::string settings = options_of(expected, chats) + " --set checkpoint.final=true";
};

TEST_F(FineTuning, OfChatsIsWhatPyTorchDoesAndComesOutAsItWas) {
  const std::string base = (fixture / "base").string();
  const double before = loss_of(base);
  const Outcome trained = plait("train --init-from " + base + " --set run.dir=@ --set run.name=tuned" + settings);
  ASSERT_EQ(trained.status, 0) << trained.errors;
  expect_steps_of(expected, path("tuned/metrics.jsonl"));
  std::ifstream metrics(path("tuned/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);)
    EXPECT_LT(nlohmann::json::parse(line).at("loss_tokens").get<double>(), 0.5 * 8 * 64) << "questions count";
  EXPECT_LT(loss_of("@/tuned"), 0.5 * before);

  ASSERT_EQ(plait("export @/tuned --out @/out").status, 0);
  ASSERT_EQ(plait("import @/out --out @/again").status, 0);
  // As many sequences at once, since BLAS libraries may round products of more rows otherwise.
  const std::string tokens = " --set launch.device=cpu --set train.micro_batch=4 --set train.global_batch=8 --tokens " +
                             (fixture / "tokens.safetensors").string() + " --logits @/";
  ASSERT_EQ(plait("eval @/tuned" + tokens + "a").status, 0);
  ASSERT_EQ(plait("eval @/again" + tokens + "b").status, 0);
  const std::vector<float> ours = values_of(path("a")), theirs = values_of(fixture / "logits.safetensors");
  EXPECT_EQ(values_of(path("b")), ours);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 1e-3);
}

// The same, straight into shards: replicas have different numbers of answers.
TEST_F(FineTuning, IsTheSameInEveryLayout) {
  write("c.yaml", "run: {dir: " + folder.path() + ", name: tuned}\nmodel: {from: " + (fixture / "base").string() + "}\n");
  const Outcome trained =
      plait("train @/c.yaml" + settings +
            " --set parallel.tensor=2 --set parallel.data=2 --set parallel.zero=2 --set train.micro_batch=1");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  std::ifstream metrics(path("tuned/metrics.jsonl"));
  std::size_t step = 0;
  for (std::string line; std::getline(metrics, line); ++step) {
    EXPECT_NEAR(nlohmann::json::parse(line).at("loss").get<double>(), expected.at("steps").at(step).at("loss").get<double>(),
                2e-5);
  }
  EXPECT_EQ(step, 20u);
}

}  // namespace
}  // namespace plait::app
