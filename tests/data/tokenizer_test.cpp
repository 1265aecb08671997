#include "data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <spdlog/fmt/fmt.h>

#include <map>
#include <string>
#include <unordered_map>

#include "core/config_error.h"
#include "core/error.h"
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/pack.h"

namespace plait::data {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

std::string every_byte() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

TEST(ByteTokenizer, IsLossless) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->vocab(), 256);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(every_byte())), every_byte());
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{'a', 300, -1}), "a <300> <-1>");
}

TEST(TokenIdTokenizer, PrintsIdsAndCannotEncode) {
  const auto tokenizer = make_token_id_tokenizer("tokens", 50257);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{15496, 995}), " <15496> <995>");
  EXPECT_THROW(tokenizer->encode("x"), ConfigError);
}

TEST(PieceLength, EndsAtALineElseACharacter) {
  EXPECT_EQ(piece_length("short", 10), 5u);
  EXPECT_EQ(piece_length("ab\ncdefgh", 5), 3u);
  EXPECT_EQ(piece_length("abcdefgh", 5), 5u);
  EXPECT_EQ(piece_length("abcd\xc3\xa9xyz", 5), 4u);
  EXPECT_EQ(piece_length(std::string(10, '\x80'), 5), 5u) << "always goes on";
}

class SentencePiece : public testing::Test {
 protected:
  SentencePiece() {
    folder_.write("text/a.txt", some_text(40000, 1));
    folder_.write("text/b.txt", some_text(20000, 2) + "\ttabs  and   spaces: caf\u00e9 \u2603\n\n  indented\n");
  }
  std::vector<std::filesystem::path> files() const { return {folder_ / "text/a.txt", folder_ / "text/b.txt"}; }
  DataFolder folder_;
};

TEST_F(SentencePiece, IsTrainedDeterministicallyAndIsLossless) {
  const auto tokenizer = train_sentencepiece(files(), 300);
  EXPECT_EQ(tokenizer->vocab(), 300);
  std::filesystem::create_directory(folder_ / "one");
  std::filesystem::create_directory(folder_ / "two");
  tokenizer->save(folder_ / "one");
  train_sentencepiece(files(), 300)->save(folder_ / "two");
  const auto read = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(read(folder_ / "one/tokenizer.model"), read(folder_ / "two/tokenizer.model"));

  const auto loaded = load_tokenizer(folder_ / "one");
  for (const std::string& text : {some_text(200000, 3), std::string(" a\n\n\tb  c \n"),
                                  std::string("\u00e9\u2603\U0001d11e unseen"), std::string("a\0b", 3), std::string()}) {
    const auto tokens = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(tokens), text);
    EXPECT_EQ(loaded->encode(text), tokens);
    const std::span<const std::int32_t> all(tokens);
    for (std::size_t n = 0; n <= std::min<std::size_t>(all.size(), 60); ++n) {
      EXPECT_TRUE(text.starts_with(tokenizer->decode(all.first(n)))) << n << " tokens of " << text.substr(0, 60);
    }
    for (const std::int32_t token : tokens) ASSERT_TRUE(token >= 0 && token < 300);
  }
  EXPECT_LT(tokenizer->encode(some_text(1000, 4)).size(), 400u) << "it has learnt the words";
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{400}), " <400>");
  EXPECT_EQ(tokenizer->unknown(), 0);
}

// A model that others could have trained: the library's options beside those that keep its training small and quiet.
std::string trained(const std::string& sample, std::unordered_map<std::string, std::string> options) {
  options.merge(std::unordered_map<std::string, std::string>{
      {"input", sample}, {"model_prefix", ""}, {"hard_vocab_limit", "false"}, {"num_threads", "1"}, {"minloglevel", "2"}});
  std::string model;
  EXPECT_TRUE(sentencepiece::SentencePieceTrainer::Train(options, nullptr, &model).ok());
  return model;
}

// Models that others trained mostly put a space before a text (add_dummy_prefix), which must not show where a long one is cut.
TEST_F(SentencePiece, GivesALongTextTheTokensThatTheLibraryGives) {
  std::string text;
  for (int i = 0; text.size() < 300'000; ++i) text += fmt::format("{}word{} to{}", i % 50 == 0 ? "\n" : " ", i % 97, i % 7);
  const std::string sample = folder_.write("sample.txt", text.substr(1, 20'000));
  for (const char* rule : {"identity", "nmt_nfkc"}) {
    for (const char* prefix : {"true", "false"}) {
      for (const char* trimmed : {"true", "false"}) {
        // Takes the space from the begin of each text, where nothing then stands for it.
        if (std::string(prefix) == "false" && std::string(trimmed) == "true") continue;
        for (const char* type : {"unigram", "bpe"}) {
          const std::string model = trained(sample, {{"model_type", type},
                                                     {"vocab_size", "60"},
                                                     {"normalization_rule_name", rule},
                                                     {"add_dummy_prefix", prefix},
                                                     {"remove_extra_whitespaces", trimmed}});
          sentencepiece::SentencePieceProcessor whole;
          ASSERT_TRUE(whole.LoadFromSerializedProto(model).ok());
          const auto tokenizer = load_sentencepiece(folder_.write("m.model", model));
          const std::vector<int> wanted = whole.EncodeAsIds(text);
          EXPECT_TRUE(tokenizer->encode(text) == std::vector<std::int32_t>(wanted.begin(), wanted.end()))
              << rule << " " << prefix << " " << trimmed << " " << type;
          std::vector<std::int32_t> pieces;
          for (std::string_view rest = text; !rest.empty();) {
            const std::size_t length = tokenizer->piece_length(rest, 100'000);
            const std::vector<std::int32_t> piece = tokenizer->encode_piece(rest.substr(0, length), pieces.empty());
            pieces.insert(pieces.end(), piece.begin(), piece.end());
            rest.remove_prefix(length);
          }
          EXPECT_TRUE(pieces == std::vector<std::int32_t>(wanted.begin(), wanted.end()));
        }
      }
    }
  }
}

// Where there are no spaces between words, a long text is cut elsewhere, and no space comes in there.
TEST_F(SentencePiece, GivesALongTextWithoutSpacesTheTokensThatTheLibraryGives) {
  const std::vector<std::string> characters{"\u4eca", "\u5929", "\u6c14", "\u5f88", "\u597d", "\u6211", "\u4eec", "\u53bb"};
  std::uint32_t state = 1;
  const auto next = [&](std::size_t count) { return ((state = state * 1664525 + 1013904223) >> 8) % count; };
  std::map<std::string, std::string> texts;
  while (texts["no spaces"].size() < 100'000) texts["no spaces"] += characters[next(characters.size())];
  while (texts["words of other letters"].size() < 100'000) {
    for (std::size_t length = 1 + next(9); length > 0; --length) texts["words of other letters"] += characters[next(8)];
    texts["words of other letters"] += ' ';
  }
  while (texts["letters"].size() < 100'000) texts["letters"] += static_cast<char>('a' + next(26));
  while (texts["lines"].size() < 100'000) texts["lines"] += fmt::format("word{}\n", next(97));
  while (texts["wide spaces"].size() < 100'000) texts["wide spaces"] += characters[next(8)] + "\u3000";
  while (texts["accents"].size() < 100'000)
    texts["accents"] += std::string{"aeiou"[next(5)]} + "\u0301" + (next(9) == 0 ? "\n\n" : "");
  std::string sample;
  for (const auto& [name, text] : texts) sample += text.substr(0, 3000) + "\n";
  const std::string file = folder_.write("sample.txt", sample);
  for (const char* rule : {"identity", "nmt_nfkc"}) {
    for (const char* prefix : {"true", "false"}) {
      for (const char* trimmed : {"true", "false"}) {
        if (std::string(prefix) == "false" && std::string(trimmed) == "true") continue;
        const std::string model = trained(file, {{"model_type", "bpe"},
                                                 {"vocab_size", "500"},
                                                 {"byte_fallback", "true"},
                                                 {"max_sentence_length", "10000"},
                                                 {"normalization_rule_name", rule},
                                                 {"add_dummy_prefix", prefix},
                                                 {"remove_extra_whitespaces", trimmed}});
        sentencepiece::SentencePieceProcessor whole;
        ASSERT_TRUE(whole.LoadFromSerializedProto(model).ok());
        const auto tokenizer = load_sentencepiece(folder_.write("m.model", model));
        for (const auto& [name, text] : texts) {
          const std::vector<int> wanted = whole.EncodeAsIds(text);
          const std::vector<std::int32_t> tokens = tokenizer->encode(text);
          EXPECT_TRUE(tokens == std::vector<std::int32_t>(wanted.begin(), wanted.end()))
              << name << " " << rule << " " << prefix << " " << trimmed;
          if (std::string(rule) == "identity" && std::string(trimmed) == "false") {
            EXPECT_EQ(tokenizer->decode(tokens), text);
          }
          const TextPart part{.text = text};
          EXPECT_TRUE(tokenizer->encode_parts({&part, 1}, {}).tokens == tokens) << name << " " << rule;
        }
      }
    }
  }
}

TEST_F(SentencePiece, IsCreatedFromTheConfigurationAndFeedsADataset) {
  Config config = data_config({folder_ / "text/**"}, 32, 0.1);
  config.data.tokenizer = "sentencepiece";
  config.data.sentencepiece.vocab = 300;
  const auto tokenizer = create_tokenizer(config);
  const auto dataset = open_dataset(config, *tokenizer, 300);
  EXPECT_LT(dataset->train_tokens(), 30000);
  std::vector<std::int32_t> tokens(32), targets(32);
  dataset->train_sample(1, 0, {tokens, targets});
  EXPECT_THAT(some_text(40000, 1) + some_text(20000, 2), HasSubstr(tokenizer->decode(std::span(tokens).subspan(1, 8))));

  // Shards packed with the model are read as its tokens, beside the tokenizer that decodes them.
  const PackResult packed = pack({{folder_ / "text/**"}, folder_ / "out", 5000}, *tokenizer);
  Config shards = data_config({folder_ / "out/*.bin"}, 32, 0.1);
  shards.data.tokenizer = "sentencepiece";
  shards.data.sentencepiece.model = folder_ / "out/tokenizer.model";
  const auto again = open_dataset(shards, *create_tokenizer(shards), 300);
  EXPECT_EQ(again->train_tokens() + again->validation_tokens(), packed.tokens);
  EXPECT_EQ(packed.tokens, dataset->train_tokens() + dataset->validation_tokens());
}

TEST_F(SentencePiece, ExplainsWhatCannotBe) {
  EXPECT_THAT(config_error([&] { train_sentencepiece(files(), 100000); }),
              HasSubstr("data.sentencepiece.vocab=100000: SentencePiece cannot train a model of that size on this text: "
                        "Vocabulary size too high"));
  EXPECT_THAT(config_error([&] { train_sentencepiece(files(), 20); }),
              HasSubstr("on this text: Vocabulary size is smaller than required_chars"));
  EXPECT_THAT(config_error([&] { train_sentencepiece({folder_.write("bad.txt", "ok\xff")}, 300); }),
              HasSubstr("bad.txt: is not UTF-8 text at byte offset 2"));
  EXPECT_THAT(config_error([&] { train_sentencepiece({folder_.write("none.txt", "")}, 300); }), HasSubstr("holds no text"));
  EXPECT_THAT(config_error([&] { load_sentencepiece(folder_.write("x.model", "garbage")); }),
              EndsWith("x.model: is not a SentencePiece model"))
      << "no place in SentencePiece's source";
  EXPECT_THAT(config_error([&] { load_sentencepiece(folder_ / "missing.model"); }),
              HasSubstr("missing.model: cannot be opened: No such file"));
  const auto tokenizer = train_sentencepiece(files(), 300);
  EXPECT_THAT(config_error([&] { tokenizer->encode("abc\xff"); }), HasSubstr("not UTF-8 at byte offset 3"));
  EXPECT_THAT(config_error([&] { open_dataset(data_config({folder_ / "bad.txt"}, 8), *tokenizer, 300); }),
              HasSubstr("bad.txt: is not UTF-8 text (at byte offset 2)"));
}

TEST(TokenizerFiles, AreRefusedWhenDamaged) {
  const DataFolder folder;
  EXPECT_THAT(config_error([&] { load_tokenizer(folder / ""); }), HasSubstr("tokenizer.json: cannot be opened"));
  for (const char* text : {"", "{", "[]", "{\"kind\": 3, \"vocab\": 4}", "{\"kind\": \"bytes\"}"}) {
    folder.write("tokenizer.json", text);
    EXPECT_THAT(config_error([&] { load_tokenizer(folder / ""); }), HasSubstr("tokenizer.json: is damaged")) << text;
  }
  folder.write("tokenizer.json", "{\"kind\": \"bpe\", \"vocab\": 4}");
  EXPECT_THAT(config_error([&] { load_tokenizer(folder / ""); }), HasSubstr("has kind 'bpe'"));
  folder.write("tokenizer.json", "{\"kind\": \"bytes\", \"vocab\": 4}");
  EXPECT_THAT(config_error([&] { load_tokenizer(folder / ""); }),
              HasSubstr("says a vocabulary of 4, but the tokenizer has 256"));
  make_token_id_tokenizer("tokens", 50257)->save(folder / "");
  EXPECT_EQ(load_tokenizer(folder / "")->vocab(), 50257);
}

}  // namespace
}  // namespace plait::data
