// plait eval as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "program_test.h"
#include "test_paths.h"

namespace plait::app {
namespace {

using testing::HasSubstr;

constexpr std::int64_t length = 16, windows = 12, vocab = 256;

// A run of a very small model, whose validation text has exactly `windows` windows.
class EvalCommand : public ProgramTest {
 protected:
  void SetUp() override {
    std::string text;
    while (text.size() < 4000) text += "the quick brown fox " + std::to_string(text.size() * 7 % 101) + " jumps\n";
    std::ofstream(path("train.txt")) << text;
    validation_ = text.substr(1000, length * windows + 1);
    std::ofstream(path("validation.txt")) << validation_;
    std::ofstream(path("job.yaml"))
        << "run: {name: r, dir: " << path("runs") << "}\n"
        << "model: {layers: 2, hidden: 16, heads: 2}\n"
        << "data: {train: [" << path("train.txt") << "], validation: [" << path("validation.txt") << "], sequence_length: 16}\n"
        << "train: {steps: 4, global_batch: 4, micro_batch: 2, eval_batches: 3, optimizer: {lr: 1e-2}}\n"
        << "launch: {device: cpu}\nlog: {tensorboard: false}\n";
    const Outcome trained = plait("train @/job.yaml");
    ASSERT_EQ(trained.status, 0) << trained.errors;
  }

  double loss(const std::string& arguments) { return json("eval @/runs/r --json " + arguments).at("loss"); }

  std::string tokens_file(const std::vector<std::int32_t>& tokens, std::int64_t columns) const {
    const std::string file = path("tokens.safetensors");
    std::filesystem::remove(file);
    const auto rows = static_cast<std::int64_t>(tokens.size()) / columns;
    const checkpoint::SafetensorsLayout layout = checkpoint::layout_safetensors({{"tokens", DType::i32, {rows, columns}}});
    const File out = File::create(file);
    out.write_at(0, layout.header.data(), layout.header.size());
    out.write_at(layout.tensors[0].offset, tokens.data(), tokens.size() * sizeof(std::int32_t));
    return file;
  }

  std::vector<float> logits(const std::string& arguments) {
    const std::string file = path("logits.safetensors");
    const Outcome done = plait("eval @/runs/r --tokens @/tokens.safetensors --logits " + file + " " + arguments);
    EXPECT_EQ(done.status, 0) << done.errors;
    EXPECT_FALSE(std::filesystem::exists(file + ".part"));
    const File in = File::open_read(file);
    const checkpoint::SafetensorsLayout layout = checkpoint::read_safetensors_layout(in);
    EXPECT_EQ(layout.tensors.at(0).spec.name, "logits");
    EXPECT_EQ(layout.tensors[0].spec.shape.back(), vocab);
    std::vector<float> values(static_cast<std::size_t>(layout.tensors[0].spec.elements()));
    in.read_at(layout.tensors[0].offset, values.data(), values.size() * sizeof(float));
    return values;
  }

  std::string validation_;
};

TEST_F(EvalCommand, TakesARunThatSaysHowPairsOfItsRanksTalk) {
  const Outcome trained = plait("train @/job.yaml --set run.name=pairs launch.ranks=2 'comm.p2p_pairs=[0-1=host]'");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_GT(json("eval @/runs/pairs --json")["loss"], 0) << "on one rank";
}

TEST_F(EvalCommand, GivesTheLossOfTheLastEvaluationInEveryLayout) {
  std::ifstream metrics(path("runs/r/metrics.jsonl"));
  nlohmann::json last;
  for (std::string line; std::getline(metrics, line);) last = nlohmann::json::parse(line);
  const nlohmann::json alone = json("eval @/runs/r --json");
  EXPECT_NEAR(alone["loss"], last["validation_loss"], 1e-5);
  EXPECT_EQ(alone["step"], 4);
  EXPECT_EQ(alone["windows"], windows);
  EXPECT_EQ(alone["tokens"], windows * length);
  EXPECT_EQ(alone["bytes"], windows * length);
  EXPECT_NEAR(alone["bits_per_byte"], alone["loss"].get<double>() / std::log(2), 1e-9);
  const double expected = alone["loss"];
  for (const char* layout : {"data=5", "tensor=2 pipeline=2", "pipeline=2 data=2 stages=[0.5,1.5]"})
    EXPECT_NEAR(loss("--layout '" + std::string(layout) + "'"), expected, 1e-5) << layout;
  EXPECT_NEAR(loss("--layout 'tensor=2 data=2' --set launch.mode=processes --set train.micro_batch=3"), expected, 1e-5);
  std::filesystem::copy(path("runs/r/checkpoints/step-00000004"), path("copy"));
  EXPECT_EQ(json("eval @/copy --json"), alone);  // without its run
  const Outcome read = plait("eval @/runs/r");
  EXPECT_THAT(read.output, testing::ContainsRegex("loss [0-9.]+ nats per token, perplexity [0-9.]+, [0-9.]+ bits per byte\n"
                                                  "192 tokens in 12 windows, step 4\n"));
}

// The rest of the last window belongs to no document.
TEST_F(EvalCommand, TakesSeparateDocumentsThatEndBeforeTheirWindow) {
  write("a.txt", validation_.substr(0, 70));
  write("b.txt", validation_.substr(90, 70));
  const Outcome trained = plait(
      "train @/job.yaml --set run.name=s model.position=rope data.documents=separate data.sequence_length=139 "
      "'data.validation=[@/a.txt, @/b.txt]' train.eval_batches=1 train.global_batch=2 train.micro_batch=1");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const nlohmann::json whole = json("eval @/runs/s --json");
  EXPECT_EQ(whole["windows"], 1);
  EXPECT_EQ(whole["tokens"], 138) << "the second document's first token follows nothing";
  for (const char* more : {"", " --layout 'tensor=2 pipeline=2'"}) {
    for (const char* longer : {"140", "200", "512"}) {
      const nlohmann::json padded = json("eval @/runs/s --json --set data.sequence_length=" + std::string(longer) + more);
      EXPECT_EQ(padded["tokens"], whole["tokens"]) << longer << more;
      EXPECT_NEAR(padded["loss"], whole["loss"], 1e-5) << longer << more;
    }
  }
}

TEST_F(EvalCommand, LogitsThatCannotBeWrittenLeaveNothing) {
  tokens_file(std::vector<std::int32_t>(64, 1), 16);
  const Outcome limited =
      run(folder.path(), "ulimit -f 8; " + std::string(test_paths::plait) + " eval " + path("runs/r") + " --tokens " +
                             path("tokens.safetensors") + " --logits " + path("l.safetensors"));
  EXPECT_EQ(limited.status, 3);
  EXPECT_THAT(limited.errors, HasSubstr("File too large"));
  EXPECT_FALSE(std::filesystem::exists(path("l.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(path("l.safetensors.part")));
}

TEST_F(EvalCommand, ACheckpointIsItselfHoweverItIsNamed) {
  const std::string checkpoint = path("runs/r/checkpoints/step-00000004");
  const double expected = loss("");
  std::filesystem::create_directory_symlink(checkpoint, path("latest"));
  struct {
    std::string from, name;
  } const names[] = {{folder.path(), checkpoint + "/"},
                     {folder.path(), "runs/r/checkpoints/step-00000004//"},
                     {folder.path(), "latest"},
                     {path("runs/r/checkpoints"), "step-00000004"},
                     {checkpoint, "."},
                     {checkpoint, "./"},
                     {path("runs/r"), "checkpoints/step-00000004"}};
  for (const auto& [from, name] : names) {
    const auto there = [&](const std::string& arguments) {
      return run(folder.path(), "cd " + from + " && " + test_paths::plait + " " + arguments);
    };
    const Outcome evaluated = there("eval " + name + " --json");
    ASSERT_EQ(evaluated.status, 0) << from << " " << name << ": " << evaluated.errors;
    EXPECT_EQ(nlohmann::json::parse(evaluated.output)["loss"], expected) << from << " " << name;
    const Outcome resumed = there("train --resume " + name);
    EXPECT_EQ(resumed.status, 0) << from << " " << name << ": " << resumed.errors;
    EXPECT_THAT(resumed.errors, HasSubstr("nothing to do")) << from << " " << name;
    EXPECT_THAT(resumed.errors, testing::Not(HasSubstr("no checkpoint before"))) << "there are no steps";
    const Outcome begun = there("train --init-from " + name + " --set train.steps=1 --set run.dir=" + path("other"));
    EXPECT_EQ(begun.status, 0) << from << " " << name << ": " << begun.errors;
  }
}

// Windows that do not come out even, on more ranks than there are windows.
TEST_F(EvalCommand, CountsEveryTokenOfOtherFilesOnce) {
  std::ofstream(path("other.txt")) << validation_.substr(0, 2 * length + 6);
  const nlohmann::json other = json("eval @/runs/r --data @/other.txt --json");
  EXPECT_EQ(other["windows"], 3);
  EXPECT_EQ(other["tokens"], 2 * length + 5);
  EXPECT_NEAR(loss("--data @/other.txt --layout data=4"), other["loss"], 1e-5);
  std::vector<std::int32_t> tokens(3 * length, 0);
  std::copy_n(validation_.begin(), 2 * length + 5, tokens.begin());
  tokens_file(tokens, length);
  const std::vector<float> values = logits("");
  double sum = 0;
  for (std::int64_t t = 0; t < 2 * length + 5; ++t) {
    const float* const row = values.data() + t * vocab;
    double total = 0;
    for (std::int64_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(row[v]));
    sum += std::log(total) - static_cast<double>(row[static_cast<unsigned char>(validation_[static_cast<std::size_t>(t + 1)])]);
  }
  EXPECT_NEAR(sum / (2 * length + 5), other["loss"], 1e-5);
}

TEST_F(EvalCommand, TakesTheLossOfWhatTheAssistantSays) {
  std::ofstream(path("chat.jsonl"))
      << R"({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cde"}]})";
  const nlohmann::json chat = json(
      "eval @/runs/r --data @/chat.jsonl --json --set data.chat_template=custom "
      "--set 'data.custom_template={user_prefix: U, assistant_prefix: A, assistant_end: .}'");
  EXPECT_EQ(chat["tokens"], 4);
  EXPECT_EQ(chat["bytes"], 4);
  const std::string text = "UabAcde.";
  tokens_file(std::vector<std::int32_t>(text.begin(), text.end() - 1), 7);
  const std::vector<float> values = logits("");
  double sum = 0;
  for (std::int64_t t = 3; t < 7; ++t) {
    const float* const row = values.data() + t * vocab;
    double total = 0;
    for (std::int64_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(row[v]));
    sum += std::log(total) - static_cast<double>(row[static_cast<unsigned char>(text[static_cast<std::size_t>(t + 1)])]);
  }
  EXPECT_NEAR(sum / 4, chat["loss"], 1e-5);
  write("asked.jsonl", R"({"messages": [{"role": "user", "content": "ab"}]})");
  EXPECT_THAT(refused("eval @/runs/r --data @/asked.jsonl --set data.chat_template=custom "
                      "--set 'data.custom_template={assistant_end: .}'"),
              HasSubstr("data.validation: no token of the validation split counts in the loss"));
}

TEST_F(EvalCommand, WritesTheSameLogitsInEveryLayout) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 5 * 8; ++i) tokens.push_back(i * 37 % 256);  // 5 sequences, shorter than it was trained with
  tokens_file(tokens, 8);
  const std::vector<float> alone = logits("");
  EXPECT_EQ(alone.size(), 5u * 8 * vocab);
  for (const char* layout : {"data=3", "tensor=2 pipeline=2"}) {
    const std::vector<float> values = logits("--layout '" + std::string(layout) + "'");
    ASSERT_EQ(values.size(), alone.size());
    float most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) most = std::max(most, std::abs(values[i] - alone[i]));
    EXPECT_LT(most, 1e-5f) << layout;
  }
}

// Nothing is beside the one pass of an evaluation, whatever a run was braided by.
TEST_F(EvalCommand, TakesARunWhoseHalvesWereBraided) {
  ASSERT_EQ(plait("train @/job.yaml --set run.name=braided parallel.data=1 parallel.tensor=2 parallel.pipeline=2 "
                  "train.micro_batch=2 comm.braid=halves")
                .status,
            0);
  for (const char* layout : {"tensor=2", "pipeline=2 tensor=2"}) {
    const Outcome done = plait("eval @/runs/braided --set train.micro_batch=1 --layout '" + std::string(layout) + "'");
    EXPECT_EQ(done.status, 0) << layout << ": " << done.errors;
  }
}

TEST_F(EvalCommand, SaysWhatWillNotDo) {
  tokens_file({1, 2, 3, 256}, 2);
  const std::string request = "eval @/runs/r --tokens @/tokens.safetensors --logits @/logits";
  EXPECT_THAT(refused(request), HasSubstr("tokens.safetensors=256: token 1 of sequence 1 must be from 0 to 255"));
  EXPECT_FALSE(std::filesystem::exists(path("logits.part")));
  const std::string wide = R"({"tokens":{"dtype":"I64","shape":[1,2],"data_offsets":[0,16]}})";
  write("tokens.safetensors",
        std::string(1, static_cast<char>(wide.size())) + std::string(7, '\0') + wide + std::string(16, '\0'));
  EXPECT_THAT(refused(request), HasSubstr("tokens.safetensors=I64: `tokens` must be I32 [batch, sequence]: store it as int32"));
  tokens_file(std::vector<std::int32_t>(17, 1), 17);
  EXPECT_THAT(refused(request), HasSubstr("model.max_sequence"));
  EXPECT_THAT(refused("eval @/runs/r --layout data=auto"), HasSubstr("parallel.data=auto: must be a number"));
  for (const std::string given : {"--layout 'pipeline=2 schedule=interleaved'",
                                  "--layout pipeline=2 --set parallel.schedule=interleaved --set train.global_batch=8"}) {
    const std::string said = refused("eval @/runs/r " + given);
    EXPECT_THAT(said, HasSubstr("parallel.schedule=interleaved: passes on a multiple of parallel.pipeline=2 micro-batches"));
    EXPECT_THAT(said, HasSubstr("take schedule=1f1b virtual_stages=1"));
  }
  write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_THAT(refused("eval @/runs/r --layout 'pipeline=2 schedule.file=@/two.csv'"),
              HasSubstr("plait eval does one micro-batch at a time: leave the file out of --layout"));
  EXPECT_EQ(plait("eval @/runs/r --layout 'pipeline=2 schedule=1f1b virtual_stages=1'").status, 0);
  EXPECT_THAT(refused("eval @/runs/r --data @/nothing.txt"), HasSubstr("nothing.txt"));
  EXPECT_THAT(refused("eval @/runs/none"), HasSubstr("none"));
  const std::string tokenizer = std::string(test_paths::source) + "/tests/data/huggingface/gpt2.json";
  EXPECT_THAT(refused("eval @/runs/r --set 'data.tokenizer={file: " + tokenizer + "}'"),
              HasSubstr("data.tokenizer=huggingface: must be bytes, which the weights of"));
  EXPECT_EQ(plait("eval @/runs/r --tokens @/tokens.safetensors").status, 2);
  EXPECT_THAT(refused("eval @/runs/r --tokens @/tokens.safetensors --logits @/./tokens.safetensors"),
              HasSubstr("tokens.safetensors: must be another file than that of --tokens"));
}

}  // namespace
}  // namespace plait::app
