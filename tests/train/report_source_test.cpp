#include "train/report/source_report.h"

#include <gtest/gtest.h>

#include "data/data_files.h"

namespace plait::train {
namespace {

TEST(SourceReport, SaysShareAndEpochsOfEachSource) {
  EXPECT_EQ(source_report({}, 10), "");
  EXPECT_EQ(source_report({{"a.txt", 1001, 100, 250}}, 10), "data a.txt: 2.50k tokens, 2.5 epochs of 1.00k");
  EXPECT_EQ(source_report({{"a.txt", 1001, 100, 250}, {std::string(70, 'b'), 50'000, 4999, 750}}, 10),
            "data a.txt: 2.50k tokens (25.00 %), 2.5 epochs of 1.00k\n"
            "data " +
                std::string(57, 'b') + "...: 7.50k tokens (75.00 %), 0.15 epochs of 50.0k");
  EXPECT_EQ(source_report({{"a.txt", 1001, 100, 165'000}}, 10), "data a.txt: 1.65M tokens, 1.65k epochs of 1.00k");
  EXPECT_EQ(source_report({{"a.txt", 1001, 100, 0}}, 10), "data a.txt: 0 tokens, 0 epochs of 1.00k");
}

Config bytes_config(const data::DataFolder& folder, const std::string& more) {
  return parse_config("model: {preset: tiny}\ndata: {train: [" + (folder / "a.txt") +
                      "], sequence_length: 16, validation_fraction: 0.25}\n"
                      "train: {steps: 10, global_batch: 4, micro_batch: 4}\n" +
                      more);
}

TEST(DataSummary, SaysHowMuchARunTakesOfWhatThereIs) {
  const data::DataFolder folder;
  folder.write("a.txt", data::some_text(1000));
  const Config config = bytes_config(folder, "");
  const auto tokenizer = data::make_byte_tokenizer();
  const auto dataset = data::open_dataset(config, *tokenizer, 256);
  EXPECT_EQ(
      data_summary(*dataset, *tokenizer, config.train, {}),
      "data: 750 tokens to train on, 250 to validate; steps 1 to 10 take 640, so this run makes 0.87 epochs; bits per byte "
      "are 1.44 x the loss (1.00 bytes a token)");
  // A run that goes on makes less.
  const auto rest = data::open_dataset(config, *tokenizer, 256, {5, 20});
  EXPECT_EQ(
      data_summary(*rest, *tokenizer, config.train, {5, 20}),
      "data: 750 tokens to train on, 250 to validate; steps 6 to 10 take 320, so this run makes 0.435 epochs; bits per byte "
      "are 1.44 x the loss (1.00 bytes a token)");
}

TEST(DataSummary, KnowsNoBytesOfTokensWithoutText) {
  Config config = bytes_config(data::DataFolder(), "");
  config.data.train.clear();
  config.data.tokenizer = "random";
  const auto tokenizer = data::make_token_id_tokenizer("random", 256);
  const auto dataset = data::open_dataset(config, *tokenizer, 256);
  EXPECT_EQ(data_summary(*dataset, *tokenizer, config.train, {}), "data: random tokens; steps 1 to 10 take 640");
}

}  // namespace
}  // namespace plait::train
