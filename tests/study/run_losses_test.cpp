#include "study/run_losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "config/config.h"
#include "core/error.h"
#include "core/error_of.h"
#include "core/temporary_directory.h"
#include "data/tokenizer.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunLossesTest : public testing::Test {
 protected:
  // A run's directory as `plait train` leaves it, with these last lines of metrics.
  fs::path write_run(const std::string& name, const std::vector<std::string>& set, const std::string& metrics) {
    const fs::path run = fs::path(folder_.path()) / name;
    fs::create_directories(run);
    const Config config = parse_config(
        "model: {layers: 2, hidden: 64, heads: 1}\n"
        "data: {train: [text/**], tokenizer: bytes, sequence_length: 32}\n"
        "train: {steps: 10, global_batch: 8, micro_batch: 8}\n",
        set);
    std::ofstream(run / "config.yaml") << to_yaml(config);
    data::make_byte_tokenizer()->save(run);
    std::ofstream(run / "metrics.jsonl") << metrics;
    return run;
  }
  static std::string at_step(int step, double loss) {
    return "{\"step\": 1, \"loss\": 5.5}\n{\"step\": " + std::to_string(step) +
           ", \"loss\": 2.5, \"validation_loss\": " + std::to_string(loss) + "}\n";
  }
  void write_origin(const fs::path& run, const fs::path& checkpoint, bool optimizer) {
    std::ofstream(run / "init_from.json") << nlohmann::json{
        {"checkpoint", checkpoint.string()}, {"optimizer", optimizer}, {"digest", "0"}};
  }
  RunLosses read() { return read_run_losses(folder_.path()); }
  std::string refused() {
    return error_of<ConfigError>([&] { return read(); });
  }

  plait::test::TemporaryDirectory folder_;
};

TEST_F(RunLossesTest, ReadsSizeTokensAndLoss) {
  write_run("b", {"model.layers=4", "train.steps=20"}, at_step(20, 2.25) + "{\"step\": 21, \"lo");
  write_run("a", {}, at_step(10, 2.75));
  fs::create_directory(fs::path(folder_.path()) / "something else");
  const RunLosses losses = read();
  ASSERT_EQ(losses.runs.size(), 2u);
  EXPECT_TRUE(losses.left_out.empty());
  // A block has 12 hidden² elements, the head 256 rows.
  EXPECT_EQ(losses.runs[0].point.parameters, 2 * 12 * 64 * 64 + 256 * 64);
  EXPECT_EQ(losses.runs[1].point.parameters, 4 * 12 * 64 * 64 + 256 * 64);
  EXPECT_EQ(losses.runs[0].point.tokens, 10 * 8 * 32);
  EXPECT_EQ(losses.runs[1].point.tokens, 20 * 8 * 32);
  EXPECT_EQ(losses.runs[1].point.loss, 2.25) << "the half-written line does not count";
}

TEST_F(RunLossesTest, LooksBelowButNotInsideRuns) {
  write_run("points/3/first", {}, at_step(10, 2.75));
  write_run("points/3/first/copy", {}, at_step(10, 2.75));
  write_run("a/b/c/d", {}, at_step(10, 2.75));
  fs::create_directory_symlink(folder_.path(), folder_.path() + "/loop");
  const RunLosses losses = read();
  ASSERT_EQ(losses.runs.size(), 1u);
  EXPECT_EQ(losses.runs[0].directory.filename(), "first");
}

TEST_F(RunLossesTest, LeavesOutWhatCannotBeCompared) {
  const fs::path trunk = write_run("trunk", {}, at_step(10, 3));
  write_origin(write_run("fork", {"train.steps=14"}, at_step(14, 2.5)), fs::canonical(trunk) / "checkpoints/step-00000010",
               true);
  write_origin(write_run("tuned", {}, at_step(10, 2.4)), "/elsewhere/checkpoints/step-00000100", false);
  write_run("unfinished", {}, at_step(7, 3));
  write_run("blind", {}, "{\"step\": 10, \"loss\": 3}\n");
  write_run("empty", {}, "");
  const RunLosses losses = read();
  ASSERT_EQ(losses.runs.size(), 1u);
  EXPECT_EQ(losses.runs[0].directory.filename(), "fork");
  EXPECT_EQ(losses.points()[0].tokens, 14 * 8 * 32) << "the trunk's steps count";
  std::map<std::string, std::string> reasons;
  for (const auto& [directory, reason] : losses.left_out) reasons[directory.filename().string()] = reason;
  EXPECT_THAT(reasons["trunk"], HasSubstr("is a trunk"));
  EXPECT_THAT(reasons["tuned"], HasSubstr("weights of another run"));
  EXPECT_THAT(reasons["unfinished"], HasSubstr("step 7 of 10"));
  EXPECT_THAT(reasons["blind"], HasSubstr("no validation loss"));
  EXPECT_THAT(reasons["empty"], HasSubstr("step 0 of 10"));
}

TEST_F(RunLossesTest, RefusesLossesOnDifferentTokens) {
  write_run("a", {}, at_step(10, 3));
  const fs::path other = write_run("b", {"data.sequence_length=64", "train.global_batch=16"}, at_step(10, 3));
  EXPECT_THAT(refused(), testing::AllOf(HasSubstr("data.sequence_length"), HasSubstr("train.global_batch"), HasSubstr("/b:")));
  fs::remove_all(other);
  // As many sequences are evaluated, if in other batches.
  write_run("c", {"train.global_batch=16", "train.eval_batches=4"}, at_step(10, 3));
  EXPECT_EQ(read().runs.size(), 2u);
  std::ofstream(fs::path(folder_.path()) / "c/metrics.jsonl") << "no json\n";
  EXPECT_THAT(refused(), HasSubstr("c/metrics.jsonl: its last line is not a JSON object: take that line away"));
}

TEST_F(RunLossesTest, RunsOnFilesAndRunsOnSourcesAreComparedByWhatTheyEvaluate) {
  const std::vector<std::string> of_sources = {"data.train=[]", "data.sources=[{files: [a/**]}, {files: [text/**]}]"};
  write_run("a", {}, at_step(10, 3));
  const fs::path other = write_run("b", of_sources, at_step(10, 3));
  EXPECT_THAT(refused(), testing::AllOf(HasSubstr("/b: data.train or data.sources"), HasSubstr("a/** (weight 1); text/**")));
  fs::remove_all(other);
  const fs::path same = write_run("c", {"data.train=[]", "data.sources=[{files: [text/**], weight: 2}]"}, at_step(10, 3));
  EXPECT_EQ(read().runs.size(), 2u) << "one source is what data.train says";
  fs::remove_all(same);
  fs::remove_all(fs::path(folder_.path()) / "a");
  write_run("d", {"data.validation=[held/**]"}, at_step(10, 3));
  std::vector<std::string> held = of_sources;
  held.push_back("data.validation=[held/**]");
  write_run("e", held, at_step(10, 3));
  EXPECT_EQ(read().runs.size(), 2u);
}

TEST_F(RunLossesTest, RefusesDocumentsThatBecomeOtherTokens) {
  write_run("a", {"data.tokenizer=tokens", "model.vocab=256"}, at_step(10, 3));
  const std::vector<std::pair<std::string, std::vector<std::string>>> changes = {
      {"data.documents", {"data.document_token.id=5", "data.documents=separate"}},
      {"data.document_token.id", {"data.document_token.id=5"}},
      {"data.document_token.place", {"data.document_token.place=end"}},
      {"data.jsonl.text_key", {"data.jsonl.text_key=body"}},
      {"data.chat_template", {"data.chat_template=chatml"}},
      {"data.custom_template.user_prefix",
       {"data.chat_template=custom", "data.custom_template={user_prefix: 'U: ', assistant_end: '.'}"}}};
  for (const auto& [key, set] : changes) {
    std::vector<std::string> all = {"data.tokenizer=tokens", "model.vocab=256"};
    all.insert(all.end(), set.begin(), set.end());
    const fs::path other = write_run("b", all, at_step(10, 3));
    EXPECT_THAT(refused(), HasSubstr("/b: " + key));
    fs::remove_all(other);
  }
}

TEST_F(RunLossesTest, SaysWhereThereIsNoRun) {
  EXPECT_THAT(refused(), HasSubstr("no directory up to 3 levels below it is a run"));
  EXPECT_THAT(refused(), HasSubstr("the study's own folder"));
  EXPECT_THAT(error_of<ConfigError>([&] { return read_run_losses(folder_.path() + "/nothing"); }),
              HasSubstr("no such directory"));
}

}  // namespace
}  // namespace plait::study
