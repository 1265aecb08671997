#include "train/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/safetensors.h"
#include "core/error_of.h"
#include "core/file.h"
#include "core/temporary_directory.h"
#include "data/tokenizer.h"

namespace plait::train {
namespace {

using testing::HasSubstr;

TEST(EvaluationWindows, PredictEveryTokenButTheFirstOnce) {
  for (const std::int64_t tokens : {2, 3, 8, 9, 10, 16, 17, 100}) {
    for (const std::int64_t length : {1, 2, 8, 200}) {
      const Windows windows(tokens, length);
      std::int64_t next = 1;  // to be predicted
      for (std::int64_t w = 0; w < windows.count(); ++w) {
        EXPECT_EQ(windows.first(w) + 1, next);
        EXPECT_GT(windows.predicted(w), 0) << tokens << " tokens in windows of " << length;
        EXPECT_LE(windows.predicted(w), length);
        next += windows.predicted(w);
      }
      EXPECT_EQ(next, tokens) << "in windows of " << length;
      EXPECT_EQ(windows.predicted(windows.count()), 0);
      EXPECT_EQ(windows.predicted(windows.count() + 5), 0);
    }
  }
}

// Tokens that are not there appear as " <id>".
TEST(EvaluationBytes, AreThoseOfTheTargetsThatCount) {
  const auto ids = data::make_token_id_tokenizer("tokens", 10000);
  using Tokens = std::vector<std::int32_t>;
  const Tokens tokens = {5, 12, 345, 6789, 1, 2};
  const auto bytes = [&](const Tokens& targets) { return counted_bytes(*ids, {}, tokens, targets); };
  EXPECT_EQ(bytes({12, 345, 6789, 1, 2, 30}), 5 + 6 + 7 + 4 + 4 + 5);
  EXPECT_EQ(bytes({-1, 345, 6789, -1, -1, 30}), 6 + 7 + 5);
  EXPECT_EQ(bytes({12, -1, -1, 1, -1, -1}), 5 + 4);
  EXPECT_EQ(bytes({-1, -1, -1, -1, -1, -1}), 0);
}

TEST(EvaluationBytes, TokensOfNoTextHaveNone) {
  const auto ids = data::make_token_id_tokenizer("tokens", 10000);
  EXPECT_EQ(counted_bytes(*ids, {345}, std::vector<std::int32_t>{345, 12, 345}, std::vector<std::int32_t>{12, 345, 1}), 5 + 4);
  EXPECT_EQ(counted_bytes(*ids, {345}, std::vector<std::int32_t>{12, 345}, std::vector<std::int32_t>{345, -1}), 0);
}

// Where a window ends within a character, its bytes are on both sides.
TEST(EvaluationBytes, AreThoseOfTheTextWhereverWindowsEnd) {
  const plait::test::TemporaryDirectory folder;
  std::ofstream(folder.path() + "/words.txt") << "some words, to learn from some words\n";
  const auto tokenizer = data::train_sentencepiece({folder.path() + "/words.txt"}, 272);
  const std::string text = "some words \u4f60\u597d\U0001f642 then words";
  const std::vector<std::int32_t> tokens = tokenizer->encode("some" + text);
  const std::size_t first = tokenizer->decode(std::span(tokens).first(1)).size();
  ASSERT_GT(tokens.size(), 12u);
  for (const std::size_t length : {1, 2, 3, 5, 7, 100}) {
    std::int64_t bytes = 0;
    for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += length) {
      const std::size_t count = std::min(length, tokens.size() - 1 - begin);
      bytes +=
          counted_bytes(*tokenizer, {}, std::span(tokens).subspan(begin, count), std::span(tokens).subspan(begin + 1, count))
              .value();
    }
    EXPECT_EQ(bytes, static_cast<std::int64_t>(4 + text.size() - first)) << "in windows of " << length;
  }
}

TEST(EvaluationBytes, OfATokenThatStandsForAnyTextAreNotKnown) {
  const plait::test::TemporaryDirectory folder;
  std::ofstream(folder.path() + "/words.txt") << "some words, to learn from some words\n";
  const auto tokenizer = data::train_sentencepiece({folder.path() + "/words.txt"}, 272);
  const std::int32_t unknown = tokenizer->unknown().value();
  using Tokens = std::vector<std::int32_t>;
  EXPECT_FALSE(counted_bytes(*tokenizer, {}, Tokens{260, 261}, Tokens{261, unknown}));
  EXPECT_TRUE(counted_bytes(*tokenizer, {}, Tokens{unknown, 261}, Tokens{261, -1})) << "it does not count";
}

TEST(EvaluationResult, InItsUnits) {
  const DataSetLoss loss{.step = 3, .windows = 2, .tokens = 100, .loss = 1.5, .bytes = 300};
  EXPECT_DOUBLE_EQ(loss.perplexity(), std::exp(1.5));
  EXPECT_DOUBLE_EQ(loss.bits_per_byte().value(), 150 / std::log(2) / 300);
  EXPECT_FALSE((DataSetLoss{.tokens = 100, .loss = 1.5, .bytes = {}}).bits_per_byte());
  EXPECT_TRUE(nlohmann::ordered_json(DataSetLoss{.tokens = 1, .loss = 1.5, .bytes = {}}).at("bits_per_byte").is_null());
}

TEST(EvaluationTokens, AreRefusedUnlessTheyAreWhatTheyShouldBe) {
  const plait::test::TemporaryDirectory folder;
  const auto refusal = [&](const std::vector<checkpoint::TensorSpec>& tensors) {
    const std::string path = folder.path() + "/t.safetensors";
    std::filesystem::remove(path);
    const checkpoint::SafetensorsLayout layout = checkpoint::layout_safetensors(tensors);
    const File file = File::create(path);
    file.write_at(0, layout.header.data(), layout.header.size());
    file.truncate(layout.file_bytes);
    return error_of<ConfigError>([&] { EXPECT_EQ(sequence_length_of(path), 5); });
  };
  EXPECT_EQ(refusal({{"tokens", DType::i32, {3, 5}}}), nothing_thrown);
  EXPECT_THAT(refusal({{"ids", DType::i32, {3, 5}}}), HasSubstr("t.safetensors=ids: must hold one tensor, called `tokens`"));
  EXPECT_THAT(refusal({{"tokens", DType::i32, {3, 5}}, {"mask", DType::i32, {3, 5}}}), HasSubstr("must hold one tensor"));
  EXPECT_THAT(refusal({{"tokens", DType::f32, {3, 5}}}), HasSubstr("must be I32 [batch, sequence]"));
  EXPECT_THAT(refusal({{"tokens", DType::i32, {15}}}), HasSubstr("must be I32 [batch, sequence]"));
  EXPECT_THAT(refusal({{"tokens", DType::i32, {0, 5}}}), HasSubstr("must be I32 [batch, sequence]"));
}

}  // namespace
}  // namespace plait::train
