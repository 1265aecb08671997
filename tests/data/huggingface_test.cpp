// Tokenizers from tokenizer.json, against what Hugging Face's `tokenizers` makes of the same text
// (huggingface/make_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/config_error.h"
#include "core/error.h"
#include "core/utf8.h"
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/huggingface/nfc.h"
#include "data/huggingface/split_pattern.h"
#include "data/pack.h"
#include "data/tokenizer.h"
#include "test_paths.h"

namespace plait::data {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

std::string fixture(const std::string& name) {
  return (std::filesystem::path(test_paths::source) / "tests/data/huggingface" / name).string();
}

Json fixture_json(const std::string& name) {
  std::ifstream file(fixture(name));
  return Json::parse(file);
}

class HuggingFace : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = load_huggingface(fixture(GetParam() + ".json"));
  DataFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Patterns, HuggingFace, testing::Values("gpt2", "llama3", "qwen2"),
                         [](const auto& pattern) { return pattern.param; });

TEST_P(HuggingFace, GivesTheIdsOfTokenizers) {
  std::ifstream file(fixture(GetParam() + ".cases.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json test = Json::parse(line);
    EXPECT_EQ(tokenizer_->encode(test[0].get<std::string>()), test[1].get<std::vector<std::int32_t>>()) << test[0];
  }
  EXPECT_EQ(cases, 700);
}

// As of `tokenizers`, which drops what is empty.
TEST(AddedTokens, OneInSpaceThatTheOneBeforeTookIsGone) {
  const AddedTokenFinder finder({{.content = "\n\n", .id = 7, .lstrip = true, .rstrip = true}});
  const std::vector<TextSection> sections = finder.sections("\n\n\n\nx");
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_EQ(sections[0].text, "\n\n\n\n");
  EXPECT_EQ(sections[0].token, 7);
  EXPECT_EQ(sections[1].text, "x");
}

TEST_P(HuggingFace, DecodesWhatItEncoded) {
  std::ifstream file(fixture(GetParam() + ".cases.jsonl"));
  std::string storage;
  for (std::string line; std::getline(file, line);) {
    std::string text = Json::parse(line)[0];
    // Space that an added token takes is gone, by definition of lstrip and rstrip; and NFC is kept.
    if (text.find("<left>") != text.npos || text.find("<right>") != text.npos || text.find("<both>") != text.npos) continue;
    if (GetParam() == "qwen2") text = std::string(nfc(text, storage));
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text)), text) << line;
  }
}

TEST_P(HuggingFace, HoldsTogetherInARun) {
  EXPECT_EQ(tokenizer_->kind(), "huggingface");
  tokenizer_->save(folder_.path());
  EXPECT_TRUE(has_tokenizer(folder_.path()));
  const auto loaded = load_tokenizer(folder_.path());
  EXPECT_EQ(loaded->kind(), "huggingface");
  EXPECT_EQ(loaded->vocab(), tokenizer_->vocab());
  EXPECT_EQ(loaded->definition(), tokenizer_->definition());
  Config config = data_config({folder_.write("a.txt", some_text(50000))}, 32, 0.1);
  config.data.tokenizer = "huggingface";
  config.data.huggingface.file = folder_ / "tokenizer.json";
  const auto dataset = open_dataset(config, *create_tokenizer(config), tokenizer_->vocab());
  EXPECT_EQ(dataset->train_tokens() + dataset->validation_tokens(), std::ssize(tokenizer_->encode(some_text(50000))));
}

// Many pieces of 4 MiB, by one thread and by several: the tokens of the whole.
TEST_P(HuggingFace, PacksTheSameWithAnyNumberOfThreads) {
  std::string text = some_text(5'000'000);
  text += "\n\n   indented caf\u00e9 cafe\u0301 <|im_end|> \n\xff\n" + some_text(5'000'000, 2) + std::string(100, '\n') + "end";
  const std::string file = folder_.write("a.txt", text);
  const auto packed = [&](int threads) {
    const std::string out = folder_ / std::to_string(threads);
    pack({{file}, out, 100'000'000, threads}, *tokenizer_);
    std::ifstream shard(out + "/shard_000000.bin", std::ios::binary);
    std::string tokens(std::istreambuf_iterator<char>(shard), {});
    return tokens.substr(1024);  // behind the header
  };
  std::vector<std::uint16_t> whole;
  for (const std::int32_t token : tokenizer_->encode(text)) whole.push_back(static_cast<std::uint16_t>(token));
  EXPECT_EQ(packed(1), bytes_of(whole));
  EXPECT_EQ(packed(3), bytes_of(whole));
}

// GPT-4o's pattern takes a line break and what the next line begins with as one piece: there a text may not be cut.
TEST(HuggingFaceText, IsCutWhereNoPieceReachesAcross) {
  const DataFolder folder;
  const Json document = {
      {"model",
       {{"type", "BPE"},
        {"unk_token", "?"},
        {"merges", {"; \u010a", ";\u010a /"}},
        {"vocab", {{"?", 0}, {"a", 1}, {";", 2}, {"\u010a", 3}, {"/", 4}, {";\u010a", 5}, {";\u010a/", 6}, {"\u0120", 7}}}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"Regex", R"( ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+)"}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          {{"type", "ByteLevel"}, {"use_regex", false}, {"add_prefix_space", false}}}}}},
      {"decoder", {{"type", "ByteLevel"}}}};
  const auto tokenizer = load_huggingface(folder.write("t.json", document.dump()));
  std::string text;
  for (int i = 0; i < 50; ++i) text += "a;\n/a;\n/aa a;\na;\n/a";
  const std::vector<std::int32_t> whole = tokenizer->encode(text);
  for (std::size_t most = 32; most < 64; ++most) {
    std::vector<std::int32_t> tokens;
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view piece = rest.substr(0, tokenizer->piece_length(rest, most));
      for (const std::int32_t token : tokenizer->encode_piece(piece, rest.size() == text.size())) tokens.push_back(token);
      rest.remove_prefix(piece.size());
    }
    EXPECT_EQ(tokens, whole) << most;
  }
}

// Long pieces: quadratic time would be hours.
TEST_P(HuggingFace, TakesNoTimeForLongPieces) {
  for (const std::string unit : {"a", " ", "\n", "\xc3\xa9", "1", "the", "\xcc\x81\xcc\x96", "=", " \n"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const auto start = std::chrono::steady_clock::now();
    const auto tokens = tokenizer_->encode(text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << unit;
    EXPECT_EQ(tokenizer_->decode(tokens).size(), text.size()) << unit;
  }
}

TEST(HuggingFaceText, BrokenBytesAreReplaced) {
  const auto tokenizer = load_huggingface(fixture("gpt2.json"));
  const auto as_python = [](const std::string& text, const std::string& replaced) {
    std::string storage;
    EXPECT_EQ(repaired_utf8(text, storage), replaced);
  };
  as_python("a\xffz", "a\ufffdz");
  as_python("\xe2\x82", "\ufffd");
  as_python("\xe2\x82z", "\ufffdz");
  as_python("\xed\xa0\x80", "\ufffd\ufffd\ufffd");
  as_python("\xf0\x90\x80\xf4\x90\x80\xc0\xaf", "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd");
  as_python("caf\u00e9 all is well here", "caf\u00e9 all is well here");
  EXPECT_EQ(tokenizer->encode("a\xed\xa0\x80z"), tokenizer->encode("a\ufffd\ufffd\ufffdz"));
}

TEST(HuggingFaceText, CharactersAreShownWhenTheyAreWhole) {
  EXPECT_EQ(unfinished_utf8(""), 0u);
  EXPECT_EQ(unfinished_utf8("abc"), 0u);
  EXPECT_EQ(unfinished_utf8("\xe2\x82\xac"), 0u);
  EXPECT_EQ(unfinished_utf8("a\xe2\x82"), 2u);
  EXPECT_EQ(unfinished_utf8("\xf0\x9f\x99"), 3u);
  EXPECT_EQ(unfinished_utf8("a\xff"), 0u) << "nothing would make it whole";
  EXPECT_EQ(unfinished_utf8("\x80\x80\x80"), 0u);
}

TEST(HuggingFaceText, SpecialTokensAreAddedOnRequest) {
  const auto tokenizer = load_huggingface(fixture("llama3.json"));
  auto tokens = tokenizer->encode("text");
  const auto with = tokenizer->with_special_tokens(tokens);
  tokens.insert(tokens.begin(), tokenizer->encode("<|begin_of_text|>").at(0));
  EXPECT_EQ(with, tokens);
  EXPECT_EQ(tokenizer->decode(with), "<|begin_of_text|>text");
}

TEST(HuggingFacePattern, SplitsInEveryBehavior) {
  const auto pieces = [](SplitBehavior behavior, bool invert) {
    const SplitPattern pattern(pcre2_pattern("-"), behavior, invert);
    SplitScratch scratch;
    std::vector<std::string> all;
    pattern.split("the-final--countdown", scratch, [&](std::string_view piece) { all.emplace_back(piece); });
    return all;
  };
  using testing::ElementsAre;
  // The examples of the documentation of `tokenizers`.
  EXPECT_THAT(pieces(SplitBehavior::removed, false), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(pieces(SplitBehavior::isolated, false), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(pieces(SplitBehavior::merged_with_previous, false), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(pieces(SplitBehavior::merged_with_next, false), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(pieces(SplitBehavior::contiguous, false), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(pieces(SplitBehavior::removed, true), ElementsAre("-", "-", "-"));
}

TEST(HuggingFacePattern, RefusesWhatRubyReadsDifferently) {
  for (const char* pattern : {"\\h+", "\\w", "\\bx", "^a", "a$", "[a[b]]", "[a&&b]", "(?<n>a)", "(?i)a", "(*F)", "a{2}+",
                              "a{,2}", "\\pL", "\\p{Han}", "(?i:\\p{Lu})", "\\x80", "[a", "a\\", "\\1"}) {
    EXPECT_THROW(pcre2_pattern(pattern), std::invalid_argument) << pattern;
  }
  EXPECT_EQ(pcre2_pattern("\\p{N}{1,3}[\\r\\n]*(?i:'s)\\u00e9[^\\p{^L}-]"), "\\p{N}{1,3}[\\r\\n]*(?i:'s)\\x{00e9}[^\\p{^L}-]");
}

// Where case is ignored, Oniguruma takes "ss" for U+DF, "ff" for U+FB00 and so on, and PCRE2 does not.
TEST(HuggingFacePattern, RefusesWhatFoldsToSeveralCharacters) {
  for (const char* pattern :
       {"(?i:ss)", "(?i:a|mass)", "(?i:S\\u017f)", "(?i:of|off)", "(?i:fi)", "(?i:FL)", "(?i:st)", "(?i:\u00df)",
        "(?i:\\u00DF)", "(?i:\\\u1e9e)", "(?i:\u0130)", "(?i:\ufb03)", "(?i:[\u00df])", "(?i:[a\u00c0-\u00ff])",
        "(?i:[\\u00c0-\\u00ff])", "(?i:(?:s)s)", "(?i:\u03b1\u0342)", "(?i:[\\t-\u00ff])"}) {
    EXPECT_THROW(pcre2_pattern(pattern), std::invalid_argument) << pattern;
  }
  for (const std::string pattern :
       {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|ss|\u00df", "'(?i:[sdmt]|ll|ve|re)", "(?i:s|s)", "(?i:s+s)", "(?i:s.s)", "(?i:s[s]s)",
        "(?i:s)s", "(?i:\u00e9)", "(?i:[\u00e0-\u00f6a-z-])", "(?i:fuel|tel)", "s(?i:s)", "[\u00df-\u00ff]ffi"}) {
    EXPECT_EQ(pcre2_pattern(pattern), pattern);
  }
  try {
    pcre2_pattern("a|(?i:'ss)");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'(?i:' around the characters that U+00DF folds to (at byte 8)"));
  }
}

// What may be in a tokenizer.json that plait must not guess at: file, field and value are named.
TEST(HuggingFaceFile, IsRefusedByName) {
  const DataFolder folder;
  const auto refusal = [&](const std::function<void(Json&)>& change) {
    Json document = fixture_json("llama3.json");
    change(document);
    const std::string file = folder.write("t.json", document.dump());
    return config_error([&] { load_huggingface(file); });
  };
  const auto set = [&](const std::string& at, const Json& value) {
    return refusal([&](Json& document) { document[Json::json_pointer(at)] = value; });
  };
  EXPECT_THAT(set("/model/type", "Unigram"), HasSubstr("t.json: model.type=Unigram: must be BPE"));
  EXPECT_THAT(set("/model/type", "Uni\ngram"), HasSubstr("t.json: model.type=Uni?gram: must be BPE"));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["vocab"]["x\ny"] = -1; }), HasSubstr("t.json: model.vocab.x?y=-1: must be"));
  EXPECT_THAT(set("/model/dropout", 0.1), HasSubstr("t.json: model.dropout=0.1: must be null or 0"));
  EXPECT_THAT(set("/model/byte_fallback", true), HasSubstr("model.byte_fallback=true: must be false"));
  EXPECT_THAT(set("/model/end_of_word_suffix", "</w>"), HasSubstr("model.end_of_word_suffix=</w>: must be empty"));
  EXPECT_THAT(set("/model/unk_token", "<unk>"), HasSubstr("model.unk_token=<unk>: names '<unk>', which model.vocab"));
  EXPECT_THAT(set("/model/vocab/a", 7), HasSubstr("must be an id that no other token has"));
  EXPECT_THAT(set("/model/vocab/a", -1), HasSubstr("model.vocab.a=-1: must be a whole number from 0 to 16777215"));
  EXPECT_THAT(set("/model/vocab/a", 18446744073709551615u), HasSubstr("must be a whole number"));
  EXPECT_THAT(set("/model/vocab/a", 1.5), HasSubstr("must be a whole number"));
  EXPECT_THAT(set("/model/vocab", Json::array()), HasSubstr("model.vocab=[...]: must be an object"));
  EXPECT_THAT(refusal([](Json& d) { d["model"]["vocab"].erase("!"); }), HasSubstr("model.merges["));
  EXPECT_THAT(refusal([](Json& d) {
                d["model"]["vocab"].erase("\u0141");
                d["model"]["merges"] = Json::array();
              }),
              HasSubstr("must have a token for byte 0x9f"));
  EXPECT_THAT(set("/model/merges/0", "a b c"), HasSubstr("model.merges[0]=a b c: must be two tokens"));
  EXPECT_THAT(set("/model/merges/0", {"a"}), HasSubstr("model.merges[0]=[...]: must be two tokens"));
  EXPECT_THAT(set("/model/merges/3", {"a", "nowhere"}), HasSubstr("model.merges[3]=[...]: names 'nowhere'"));
  EXPECT_THAT(set("/normalizer", {{"type", "NFKC"}}), HasSubstr("normalizer.type=NFKC: must be NFC"));
  EXPECT_THAT(set("/pre_tokenizer", nullptr), HasSubstr("pre_tokenizer=null: must be ByteLevel"));
  EXPECT_THAT(set("/pre_tokenizer", {{"type", "Metaspace"}}), HasSubstr("pre_tokenizer.type=Metaspace: must be ByteLevel"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a"),
              HasSubstr("pattern.Regex=(a: cannot be used: missing"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/pattern/Regex", "a*"), HasSubstr("without taking a character"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+"), HasSubstr("has '\\w' (at byte 0)"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/behavior", "Split"), HasSubstr("behavior=Split: must be Removed"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/type", "Whitespace"), HasSubstr("type=Whitespace: must be Split or Digits"));
  EXPECT_THAT(set("/decoder", {{"type", "Metaspace"}}), HasSubstr("decoder={...}: must be ByteLevel"));
  EXPECT_THAT(set("/post_processor", {{"type", "BertProcessing"}}), HasSubstr("post_processor.type=BertProcessing"));
  EXPECT_THAT(set("/truncation", {{"max_length", 8}}), HasSubstr("truncation={...}: must be null"));
  EXPECT_THAT(set("/added_tokens/1/content", "<|begin_of_text|>"),
              HasSubstr("added_tokens[1].content=<|begin_of_text|>: must"));
  EXPECT_THAT(set("/added_tokens/1/content", ""), HasSubstr("must have 1 to 4096 bytes"));
  EXPECT_THAT(set("/added_tokens/1/id", 5), HasSubstr("added_tokens[1].id=5: must be 1001"));
  EXPECT_THAT(set("/added_tokens/1/lstrip", 1), HasSubstr("added_tokens[1].lstrip=1: must be true or false"));
  EXPECT_THAT(set("/model", nullptr), HasSubstr("model=null: must be there"));
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  EXPECT_THAT(set("/normalizer", nested), HasSubstr("must not be nested deeper"));
  const auto text_refusal = [&](const std::string& text) {
    const std::string file = folder.write("t.json", text);
    return config_error([&] { load_huggingface(file); });
  };
  EXPECT_THAT(text_refusal("{"), HasSubstr("t.json: is not JSON (at byte 2)"));
  EXPECT_THAT(text_refusal("[1e999]"), HasSubstr("t.json: has a number beyond 1.8e308"));
  EXPECT_THAT(text_refusal("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(text_refusal("{\"model\": \"\xff\"}"), HasSubstr("is not UTF-8 text (at byte 12)"));
  EXPECT_THAT(text_refusal(std::string(1'000'000, '[')), HasSubstr("t.json: is nested deeper than 100 levels"));
  EXPECT_THAT(config_error([&] { load_huggingface(folder / "none.json"); }), HasSubstr("none.json: cannot be opened"));
}

// Bytes without a token, which only a damaged or a made-up vocabulary has: one unk_token for each, or for all in a row.
TEST(HuggingFaceFile, MayHaveAnUnknownToken) {
  const DataFolder folder;
  for (const bool fuse : {false, true}) {
    const Json document = {{"model",
                            {{"type", "BPE"},
                             {"unk_token", "?"},
                             {"fuse_unk", fuse},
                             {"merges", {"a b"}},
                             {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}}}},
                           {"pre_tokenizer", {{"type", "ByteLevel"}, {"use_regex", false}, {"add_prefix_space", false}}},
                           {"decoder", {{"type", "ByteLevel"}}}};
    const auto tokenizer = load_huggingface(folder.write("t.json", document.dump()));
    EXPECT_EQ(tokenizer->encode("abxyb?"),
              (fuse ? std::vector<std::int32_t>{3, 0, 2, 0} : std::vector<std::int32_t>{3, 0, 0, 2, 0}));
  }
}

}  // namespace
}  // namespace plait::data
