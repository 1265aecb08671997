// The program's `data pack`, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "app/run_plait.h"
#include "checkpoint/safetensors.h"
#include "config/config.h"
#include "core/file.h"
#include "data/batch_prefetcher.h"
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/token_shard.h"
#include "data/tokenizer.h"
#include "test_paths.h"

namespace plait::app {
namespace {

TEST(DataPackCommand, WritesShardsAndOneJsonDocument) {
  const data::DataFolder folder;
  folder.write("text/a.txt", data::some_text(1000));
  const Outcome outcome = run_plait(
      folder.path(), "data pack --json --shard-tokens 600 --out " + (folder / "out") + " '" + (folder / "text/**") + "'");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const auto document = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(document["tokens"], 1000);
  EXPECT_EQ(document["vocab"], 256);
  ASSERT_EQ(document["shards"].size(), 2u);
  EXPECT_EQ(data::TokenShard(document["shards"][1].get<std::string>()).tokens(), 400);
}

// Shards that a training run would take for the whole.
TEST(DataPackCommand, LeavesNothingWhenItIsInterrupted) {
  const data::DataFolder folder;
  folder.write("a.txt", std::string(100'000'000, 'x'));
  const Outcome outcome =
      run(folder.path(), std::string("sh -c '") + test_paths::plait + " data pack --threads 1 --shard-tokens 1000000 --out " +
                             (folder / "out") + " " + (folder / "a.txt") + " & p=$!; while [ ! -e " + (folder / "out") +
                             "/shard_000000.bin ] && kill -0 $p; do :; done; kill -TERM $p; wait $p'");
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.errors;
  EXPECT_THAT(outcome.errors, testing::HasSubstr("interrupted by signal 15"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(DataPackCommand, RefusesWithStatus2AndAReason) {
  const data::DataFolder folder;
  const std::string text = folder.write("a.txt", data::some_text(1000)), out = " --out " + (folder / "out") + " ";
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run_plait(folder.path(), "data pack" + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
    return outcome.errors;
  };
  EXPECT_THAT(refusal(out + (folder / "none")), testing::HasSubstr("none: matches no file"));
  EXPECT_THAT(refusal(out + "--tokenizer sentencepiece " + text), testing::HasSubstr("needs either --vocab"));
  EXPECT_THAT(refusal(out + "--vocab 300 " + text), testing::HasSubstr("takes neither --vocab nor --model"));
  EXPECT_THAT(refusal(out + "--tokenizer gpt2 " + text), testing::HasSubstr("gpt2"));
  EXPECT_THAT(refusal(" " + text), testing::HasSubstr("--out"));
  ASSERT_EQ(run_plait(folder.path(), "data pack --out " + (folder / "packed") + " " + text).status, 0);
  const std::string shard = folder / "packed/shard_000000.bin";
  EXPECT_THAT(refusal(out + text + " " + shard), testing::HasSubstr(shard + ": is a token shard already, not text"));
  const std::string megatron = folder.write("m.bin", "text?");
  folder.write("m.idx", std::string("MMIDIDX\0\0", 9));
  EXPECT_THAT(refusal(out + megatron), testing::HasSubstr(megatron + ": is a token shard already"));
  folder.write("empty/a.txt", "");
  EXPECT_THAT(refusal(out + "'" + (folder / "empty/*") + "'"), testing::HasSubstr("empty/a.txt: holds no text"));
  folder.write("empty/b.jsonl", "\n");
  EXPECT_THAT(
      refusal(out + "'" + (folder / "empty/*") + "'"),
      testing::AllOf(testing::HasSubstr("empty/a.txt: holds no text"), testing::HasSubstr("empty/b.jsonl: holds no text")));
  const std::string bad = folder.write("b.jsonl", "{\"text\": \"abc\"}\n{\"text\": 5}\n");
  EXPECT_THAT(refusal(out + "--shard-tokens 100 " + text + " " + bad),
              testing::HasSubstr("b.jsonl:2: 'text' must be a string"));
  const std::string few = refusal(out + "--tokenizer sentencepiece --vocab 5 " + text);
  EXPECT_THAT(few, testing::HasSubstr("--vocab=5: SentencePiece cannot train a model of that size on this text"));
  EXPECT_THAT(few, testing::HasSubstr("take at least the second number"));
  EXPECT_THAT(few, testing::Not(testing::HasSubstr("--character_coverage")));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(DataPackCommand, SaysHowToTrainOnThemWhateverTheirFolder) {
  const data::DataFolder folder;
  const std::string tokenizer = std::string(test_paths::source) + "/tests/app/finetune/base/tokenizer.json";
  const Outcome outcome = run_plait(folder.path(), "data pack --tokenizer " + tokenizer + " --out '" + (folder / "a, \"b\"") +
                                                       "' " + folder.write("a.txt", data::some_text(1000)));
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const std::string said = outcome.output.substr(outcome.output.find("  data: {") + 2);
  const Config config = parse_config(said +
                                         "model: {layers: 1, hidden: 8, heads: 1}\ntrain: {steps: 9, global_batch: 1, "
                                         "micro_batch: 1}\n",
                                     {}, "what it said");
  EXPECT_EQ(config.data.huggingface.file, folder / "a, \"b\"/tokenizer.json");
  EXPECT_EQ(config.data.train.at(0), folder / "a, \"b\"/*.bin");
}

constexpr const char* chats =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": \"assistant\", \"content\": \"cd\"}]}\n"
    "{\"text\": \"xyz\"}\n";

std::string chat_config(const data::DataFolder& folder) {
  return folder.write("chat.yaml",
                      "model: {layers: 1, hidden: 8, heads: 1}\ntrain: {steps: 9, global_batch: 1, micro_batch: 1}\n"
                      "data:\n  train: [" +
                          folder.write("a.jsonl", chats) +
                          "]\n  sequence_length: 9\n  validation_fraction: 0\n  documents: separate\n"
                          "  chat_template: custom\n"
                          "  custom_template: {user_prefix: U, assistant_prefix: A, assistant_end: \"\\n\"}\n");
}

TEST(DataPackCommand, KeepsTheMaskOfChats) {
  const data::DataFolder folder;
  const std::string pack = "data pack --json --out " + (folder / "out") + " " + folder.write("b.jsonl", chats);
  const Outcome outcome = run_plait(folder.path(), pack + " --config " + chat_config(folder));
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(nlohmann::json::parse(outcome.output)["documents"], 2);
  const data::TokenShard shard(folder / "out/shard_000000.bin");
  ASSERT_TRUE(shard.marks().has_value());
  EXPECT_EQ(shard.marks()->documents(), (std::vector<std::int64_t>{0, 7}));
  EXPECT_EQ(shard.marks()->masked_runs(), (std::vector<std::int64_t>{0, 4}));
  EXPECT_THAT(run_plait(folder.path(), pack + " --chat-template custom").errors, testing::HasSubstr("custom"));
  EXPECT_THAT(run_plait(folder.path(), pack + " --text-key t --config x").errors, testing::HasSubstr("--config"));
  EXPECT_THAT(run_plait(folder.path(), pack + " --document-token 7").errors, testing::HasSubstr("other than bytes"));
}

TEST(DataPackCommand, TakesTheTokenizerOfTheConfiguration) {
  const data::DataFolder folder;
  const std::string text = folder.write("a.txt", "some text, twice: some text");
  const auto config = [&](const std::string& tokenizer) {
    return folder.write("c.yaml",
                        "model: {layers: 1, hidden: 8, heads: 1, vocab: 400}\ntrain: {steps: 9, global_batch: 1, "
                        "micro_batch: 1}\ndata: {train: [" +
                            text + "], sequence_length: 9, tokenizer: " + tokenizer + "}\n");
  };
  const std::string pack = "data pack --json " + text + " --config ";
  const std::string file = std::string(test_paths::source) + "/tests/app/finetune/base/tokenizer.json";
  const Outcome own = run_plait(folder.path(), pack + config("{file: " + file + "}") + " --out " + (folder / "own"));
  ASSERT_EQ(own.status, 0) << own.errors;
  EXPECT_EQ(nlohmann::json::parse(own.output)["tokenizer"], "huggingface");
  const Outcome given =
      run_plait(folder.path(), pack + config("{file: " + file + "}") + " --tokenizer bytes --out " + (folder / "b"));
  ASSERT_EQ(given.status, 0) << given.errors;
  EXPECT_EQ(nlohmann::json::parse(given.output)["tokenizer"], "bytes");
  const Outcome none = run_plait(folder.path(), pack + config("tokens") + " --out " + (folder / "none"));
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.errors, testing::HasSubstr("--tokenizer"));
}

TEST(DataBatchesCommand, WritesWhereDocumentsBeginAndWhatIsMasked) {
  const data::DataFolder folder;
  const Outcome outcome =
      run_plait(folder.path(), "data batches " + chat_config(folder) + " --steps 1 --out " + (folder / "b.safetensors"));
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const File file = File::open_read(folder / "b.safetensors");
  const checkpoint::SafetensorsLayout layout = checkpoint::read_safetensors_layout(file);
  const auto read = [&](std::size_t tensor, const std::string& name) {
    EXPECT_EQ(layout.tensors.at(tensor).spec.name, name);
    std::vector<std::int32_t> values(9);
    file.read_at(layout.tensors[tensor].offset, values.data(), values.size() * sizeof(std::int32_t));
    return values;
  };
  EXPECT_EQ(read(0, "tokens"), (std::vector<std::int32_t>{'U', 'a', 'b', 'A', 'c', 'd', '\n', 'x', 'y'}));
  EXPECT_EQ(read(1, "targets"), (std::vector<std::int32_t>{-1, -1, -1, 'c', 'd', '\n', -1, 'y', 'z'}));
  EXPECT_EQ(read(2, "starts"), (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 0, 7, 7}));
}

TEST(DataEncodeCommand, GivesTheIdsOfTokenizers) {
  const data::DataFolder folder;
  const std::string fixtures = std::string(test_paths::source) + "/tests/data/huggingface/";
  std::ifstream cases(fixtures + "gpt2.cases.jsonl");
  std::string texts;
  std::vector<nlohmann::json> expected;
  for (std::string line; expected.size() < 200 && std::getline(cases, line);) {  // ["text",[ids]]
    const std::size_t ids = line.rfind(",[") + 1;
    texts += line.substr(1, ids - 2) + "\n";
    expected.push_back(nlohmann::json::parse(line.substr(ids, line.size() - ids - 1)));
  }
  ASSERT_GT(expected.size(), 20u);
  const std::string command = "data encode --tokenizer " + fixtures + "gpt2.json";
  const Outcome all = run_plait(folder.path(), command + " --json-lines < " + folder.write("texts", texts));
  ASSERT_EQ(all.status, 0) << all.errors;
  std::istringstream lines(all.output);
  for (const nlohmann::json& ids : expected) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(nlohmann::json::parse(line), ids);
  }
  const Outcome cut =
      run_plait(folder.path(), command + " --json-lines < " + folder.write("zero", std::string("\"abc\"\0\"zzz\"\n", 12)));
  EXPECT_EQ(cut.status, 2);
  EXPECT_THAT(cut.errors, testing::HasSubstr("standard input, line 1: must be a JSON string"));
  const std::string text = "two lines\nof text";
  const Outcome one = run_plait(folder.path(), command + " < " + folder.write("text", text));
  EXPECT_EQ(nlohmann::json::parse(one.output), data::load_huggingface(fixtures + "gpt2.json")->encode(text));
}

// What it writes against what the ranks of a data-parallel layout take.
TEST(DataBatchesCommand, WritesWhatTheRanksTrainOn) {
  const data::DataFolder folder;
  const std::string text = folder.write("a.txt", data::some_text(300));
  const std::string config =
      folder.write("job.yaml", "run: {seed: 7}\nmodel: {layers: 1, hidden: 8, heads: 1}\ndata: {train: [" + text +
                                   "], sequence_length: 16}\ntrain: {steps: 9, global_batch: 8, micro_batch: 2}\n");
  const Outcome outcome =
      run_plait(folder.path(), "data batches " + config + " --steps 5 --out " + (folder / "b.safetensors"));  // over an epoch
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const File file = File::open_read(folder / "b.safetensors");
  const checkpoint::SafetensorsLayout layout = checkpoint::read_safetensors_layout(file);
  const auto read = [&](std::size_t tensor) {
    EXPECT_EQ(layout.tensors.at(tensor).spec.shape, (std::vector<std::int64_t>{5, 8, 16}));
    std::vector<std::int32_t> values(5 * 8 * 16);
    file.read_at(layout.tensors[tensor].offset, values.data(), values.size() * sizeof(std::int32_t));
    return values;
  };
  const std::vector<std::int32_t> tokens = read(0), targets = read(1);
  EXPECT_EQ(layout.tensors[0].spec.name, "tokens");
  EXPECT_EQ(layout.tensors[1].spec.name, "targets");
  const Config parsed = load_config(config);
  const auto dataset = data::open_dataset(parsed, *data::make_byte_tokenizer(), 256);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const data::BatchShape shape{.micro_batch = 2, .micro_batches = 2, .data_size = 2, .data_rank = rank};
    std::vector<std::vector<std::int32_t>> memory(4, std::vector<std::int32_t>(2 * 16));
    std::vector<data::HostBatchMemory> ring;
    for (std::size_t i = 0; i < 2; ++i)
      ring.push_back({View(memory[2 * i].data(), DType::i32, {2, 16}), View(memory[2 * i + 1].data(), DType::i32, {2, 16})});
    data::BatchPrefetcher ranks_batches(dataset, shape, 1, 5, ring, Device{});
    const Stream stream{Device{}};
    for (std::int64_t n = 0; n < 5 * 2; ++n) {
      const data::HostBatch& batch = ranks_batches.next();
      const std::int64_t first = ((batch.step - 1) * 8 + shape.first_sample(batch.micro_batch)) * 16;
      EXPECT_TRUE(std::equal(tokens.begin() + first, tokens.begin() + first + 32, batch.tokens.as<std::int32_t>())) << n;
      EXPECT_TRUE(std::equal(targets.begin() + first, targets.begin() + first + 32, batch.targets.as<std::int32_t>())) << n;
      ranks_batches.release(stream);
    }
  }
  EXPECT_EQ(run_plait(folder.path(), "data batches " + config + " --steps 0 --out x").status, 2);
  EXPECT_EQ(run_plait(folder.path(), "data batches " + config + " --steps 1 --out " + (folder / "b.safetensors")).status, 2);
}

// The folders that it names hold chats and goldens too, which are no text to learn.
TEST(DataBatchesCommand, QuickstartFindsText) {
  const data::DataFolder folder;
  const Outcome outcome = run(folder.path(), "cd " + std::string(test_paths::source) + " && " + test_paths::plait +
                                                 " data batches configs/quickstart.yaml --steps 1 --out " + (folder / "b"));
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
}

}  // namespace
}  // namespace plait::app
