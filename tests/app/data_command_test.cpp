// The program's `data pack`, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/run_plait.h"
#include "data/data_files.h"
#include "data/token_shard.h"

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
}

}  // namespace
}  // namespace plait::app
