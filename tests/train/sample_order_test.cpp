// The samples of a run that is stopped and goes on: the same ones, or it is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "core/error.h"
#include "core/file.h"
#include "train/trainer.h"
#include "train/trainer_fixture.h"

namespace plait::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SampleOrder : public TrainerTest {
 protected:
  void SetUp() override {
    TrainerTest::SetUp();
    ASSERT_EQ(train(request({"train.steps=2", "checkpoint.every=2"})), 0);
  }
  fs::path checkpoint(std::int64_t step) const { return checkpoint::checkpoint_directory(run_dir(), step); }
  std::int64_t samples(std::int64_t step) const {
    return checkpoint::CheckpointReader(checkpoint(step)).state()["data"]["samples"].get<std::int64_t>();
  }
  std::string refusal(const std::vector<std::string>& set) const {
    try {
      train(request(set, run_dir()));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  }
};

TEST_F(SampleOrder, CountsOnWithAnotherGlobalBatch) {
  EXPECT_EQ(samples(2), 16);
  ASSERT_EQ(train(request({"train.steps=4", "train.global_batch=12"}, run_dir())), 0);
  EXPECT_EQ(samples(4), 16 + 24);
}

TEST_F(SampleOrder, ThatWouldChangeIsRefused) {
  EXPECT_THAT(refusal({"train.steps=4", "run.seed=5"}),
              AllOf(HasSubstr("run.seed=5: was 1234 when " + checkpoint(2).string()), HasSubstr("--init-from")));
  EXPECT_THAT(refusal({"train.steps=4", "data.shuffle=false"}), HasSubstr("data.shuffle=false: was true"));
  std::ofstream(directory_ / "text.txt", std::ios::app) << "one line more\n";
  EXPECT_THAT(refusal({"train.steps=4"}), HasSubstr("tokens of training source 0="));
  EXPECT_EQ(checkpoint::list_checkpoints(run_dir()).size(), 1u);
}

TEST_F(SampleOrder, IsRefusedWithACommandThatAShellReads) {
  const fs::path moved = run_dir("a b");
  fs::rename(run_dir(), moved);
  try {
    train(request({"train.steps=4", "run.seed=5"}, moved));
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("plait train --init-from '" + checkpoint::checkpoint_directory(moved, 2).string() +
                                        "' --with-optimizer"));
  }
}

TEST_F(SampleOrder, OfAForkMayChange) {
  const std::string path = "train.init_from.path=" + run_dir().string();
  ASSERT_EQ(train(request({"train.steps=3", "run.name=fork", "run.seed=5", path, "train.init_from.optimizer=true"})), 0);
  const checkpoint::CheckpointReader fork(checkpoint::checkpoint_directory(run_dir("fork"), 3));
  EXPECT_EQ(fork.state()["data"]["samples"], 24);
  EXPECT_EQ(fork.state()["data"]["order"]["run.seed"], "5");
}

// Checkpoints from before the record existed.
TEST_F(SampleOrder, ThatIsNotRecordedIsRefused) {
  const fs::path state = checkpoint(2) / checkpoint::Manifest::file_name;
  checkpoint::Manifest manifest = checkpoint::parse_manifest(read_text(state, 1 << 20), state);
  const nlohmann::ordered_json record = manifest.state["data"];
  for (const char* bad :
       {"1", R"({"samples": -1, "order": {}})", R"({"samples": 1, "order": {"a": 1}})", R"({"samples": 1})"}) {
    manifest.state["data"] = nlohmann::ordered_json::parse(bad);
    write_text_file(state, to_text(manifest));
    EXPECT_THAT(refusal({"train.steps=4"}), AllOf(HasSubstr(state.string()), HasSubstr("'state.data"))) << bad;
  }
  manifest.state.erase("data");
  write_text_file(state, to_text(manifest));
  EXPECT_THAT(refusal({"train.steps=4"}), AllOf(HasSubstr("drew samples in another order"),
                                                HasSubstr("--init-from " + checkpoint(2).string() + " --with-optimizer")));
  const std::string path = "train.init_from.path=" + run_dir().string();
  EXPECT_EQ(train(request({"train.steps=3", "run.name=fork", path, "train.init_from.optimizer=true"})), 0);
}

}  // namespace
}  // namespace plait::train
