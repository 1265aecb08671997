// The program's `data pack`, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "train/data/token_shard.h"
#include "train/data_files.h"

namespace plait::train {
namespace {

struct Outcome {
  int status = -1;
  std::string output, errors;
};

Outcome run_plait(const DataFolder& folder, const std::string& arguments) {
  Outcome outcome;
  const std::string command = std::string(PLAIT_BINARY) + " " + arguments + " 2>" + (folder / "stderr");
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.output.append(buffer.data(), n);
  outcome.status = WEXITSTATUS(::pclose(pipe));
  std::ifstream file(folder / "stderr");
  outcome.errors.assign(std::istreambuf_iterator<char>(file), {});
  return outcome;
}

TEST(DataPackCommand, WritesShardsAndOneJsonDocument) {
  const DataFolder folder;
  folder.write("text/a.txt", some_text(1000));
  const Outcome outcome =
      run_plait(folder, "data pack --json --shard-tokens 600 --out " + (folder / "out") + " '" + (folder / "text/**") + "'");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const auto document = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(document["tokens"], 1000);
  EXPECT_EQ(document["vocab"], 256);
  ASSERT_EQ(document["shards"].size(), 2u);
  EXPECT_EQ(TokenShard(document["shards"][1].get<std::string>()).tokens(), 400);
}

TEST(DataPackCommand, RefusesWithStatus2AndAReason) {
  const DataFolder folder;
  const std::string text = folder.write("a.txt", some_text(1000)), out = " --out " + (folder / "out") + " ";
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run_plait(folder, "data pack" + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
    return outcome.errors;
  };
  EXPECT_THAT(refusal(out + (folder / "none")), testing::HasSubstr("none: matches no file"));
  EXPECT_THAT(refusal(out + "--tokenizer sentencepiece " + text), testing::HasSubstr("needs either --vocab"));
  EXPECT_THAT(refusal(out + "--vocab 300 " + text), testing::HasSubstr("takes neither --vocab nor --model"));
  EXPECT_THAT(refusal(out + "--tokenizer gpt2 " + text), testing::HasSubstr("gpt2"));
  EXPECT_THAT(refusal(" " + text), testing::HasSubstr("--out"));
}

}  // namespace
}  // namespace plait::train
