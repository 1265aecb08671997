// What import and export tell while they copy.
#include "interop/foreign_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/config_error.h"
#include "core/temporary_directory.h"
#include "data/tokenizer.h"
#include "interop/trained_model.h"
#include "test_paths.h"
#include "train/initial_weights.h"

namespace plait::interop {
namespace {

class Told {
 public:
  ProgressCallback callback() {
    return [this](double done, const std::string& tensor) { done_.push_back(done), tensors_.push_back(tensor); };
  }
  const std::vector<std::string>& tensors() const { return tensors_; }
  void expect_parts() const {
    ASSERT_FALSE(done_.empty());
    EXPECT_EQ(done_.front(), 0);
    EXPECT_TRUE(std::ranges::is_sorted(done_, std::ranges::less_equal()));  // each tensor has bytes
    EXPECT_LT(done_.back(), 1);
    EXPECT_GT(done_.back(), 0.5);
  }

 private:
  std::vector<double> done_;
  std::vector<std::string> tensors_;
};

TEST(ForeignModels, TellEachTensorAndWhatIsDoneBeforeIt) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path base(folder.path());
  Told imported, exported, in_files;
  import_model({.model = std::filesystem::path(test_paths::source) / "tests/app/transformers/llama",
                .out = base / "run",
                .progress = imported.callback()});
  imported.expect_parts();
  EXPECT_THAT(imported.tensors(), testing::Contains("blocks.1.mlp.up.weight"));
  export_model({.run_or_checkpoint = base / "run", .out = base / "out", .dtype = {}, .progress = exported.callback()});
  exported.expect_parts();
  EXPECT_THAT(exported.tensors(), testing::Contains("lm_head.weight"));
  export_model({.run_or_checkpoint = base / "run",
                .out = base / "files",
                .dtype = {},
                .most_bytes = 1000,
                .progress = in_files.callback()});
  in_files.expect_parts();
  EXPECT_EQ(in_files.tensors(), exported.tensors());
}

// A directory with config.json and tokenizer.model, which has 300 pieces.
class FoundModels : public testing::Test {
 protected:
  FoundModels() {
    std::filesystem::create_directory(model);
    std::string words;
    for (int i = 0; i < 5000; ++i) words += "word" + std::to_string(i * i % 97) + (i % 9 == 0 ? "\n" : " ");
    std::ofstream(folder.path() + "/words.txt") << words;
    data::train_sentencepiece({folder.path() + "/words.txt"}, 300)->save(model);
    std::filesystem::remove(model / "tokenizer.json");
    write_config(400);
  }
  void write_config(std::int64_t vocab) const {
    std::ifstream fixture(std::filesystem::path(test_paths::source) / "tests/app/transformers/llama/config.json");
    nlohmann::json config = nlohmann::json::parse(fixture);
    config["vocab_size"] = vocab;
    std::ofstream(model / "config.json") << config;
  }
  // What plait does not read, with these added tokens.
  void write_tokenizer_json(const std::vector<nlohmann::json>& added) const {
    std::ofstream(model / "tokenizer.json")
        << nlohmann::json{{"added_tokens", added}, {"normalizer", {{"type", "Prepend"}}}, {"model", {{"type", "BPE"}}}};
  }
  std::string notes() const { return testing::PrintToString(find_model(model).notes()); }

  const test::TemporaryDirectory folder;
  const std::filesystem::path model = std::filesystem::path(folder.path()) / "hf";
};

using testing::AllOf;
using testing::HasSubstr;

TEST_F(FoundModels, SayWhichTokenizerWasTakenAndWhy) {
  EXPECT_EQ(find_model(model).keys.tokenizer, "sentencepiece");
  EXPECT_THAT(find_model(model).notes(), testing::IsEmpty());

  const nlohmann::json known{{"id", 0}, {"content", "<unk>"}}, more{{"id", 300}, {"content", "<|im_start|>"}};
  write_tokenizer_json({known});
  EXPECT_EQ(find_model(model).keys.tokenizer, "sentencepiece");
  EXPECT_THAT(notes(), AllOf(HasSubstr("the tokenizer is that of tokenizer.model"), HasSubstr("type=Prepend: must be NFC")));
  // Text with tokens that it lacks would be other tokens than the model knows.
  write_tokenizer_json({known, more});
  EXPECT_EQ(find_model(model).keys.tokenizer, "tokens");
  EXPECT_THAT(notes(), AllOf(HasSubstr("type=Prepend: must be NFC"),
                             HasSubstr("tokenizer.model: has no '<|im_start|>' of id 300, which tokenizer.json adds")));
  const nlohmann::json moved{{"id", 7}, {"content", "<unk>"}};
  write_tokenizer_json({moved});
  EXPECT_THAT(notes(), HasSubstr("has no '<unk>' of id 7"));

  std::filesystem::remove(model / "tokenizer.json");
  std::filesystem::create_symlink("gone", model / "tokenizer.json");
  EXPECT_EQ(find_model(model).keys.tokenizer, "tokens");
  EXPECT_THAT(notes(), HasSubstr("tokenizer.json: is a link that leads nowhere: gone is not there"));
  std::filesystem::remove(model / "tokenizer.json");
  write_config(200);
  EXPECT_EQ(find_model(model).keys.tokenizer, "tokens");
  EXPECT_THAT(notes(), HasSubstr("tokenizer.model: has 300 tokens, more than the vocabulary of the model, 200"));
  std::filesystem::remove(model / "tokenizer.model");
  EXPECT_THAT(notes(), HasSubstr("there is none that plait knows"));
}

TEST_F(FoundModels, HaveTheirOwnTokenizerAndNoOther) {
  const auto tokenizer = [&](const std::vector<std::string>& overrides) {
    return train::trained_tokenizer(config_of_model(find_model(model), "m", overrides), model);
  };
  EXPECT_EQ(tokenizer({})->kind(), "sentencepiece");
  const std::string copy = folder.path() + "/copy.model", other = folder.path() + "/other.model";
  std::filesystem::copy_file(model / "tokenizer.model", copy);
  EXPECT_EQ(tokenizer({"data.tokenizer={sentencepiece: {model: " + copy + "}}"})->kind(), "sentencepiece");
  EXPECT_EQ(tokenizer({"data.tokenizer=tokens"})->kind(), "tokens") << "for shards of its tokens";
  EXPECT_THAT(config_error([&] { tokenizer({"data.tokenizer=bytes"}); }),
              HasSubstr("data.tokenizer=bytes: must be {sentencepiece: {model: " + (model / "tokenizer.model").string()));
  data::train_sentencepiece({folder.path() + "/words.txt"}, 290)->save(folder.path());
  std::filesystem::rename(folder.path() + "/tokenizer.model", other);
  EXPECT_THAT(config_error([&] { tokenizer({"data.tokenizer={sentencepiece: {model: " + other + "}}"}); }),
              HasSubstr("is not the one that the weights were trained with"));
}

}  // namespace
}  // namespace plait::interop
