// JSONL, and what zstd compressed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zstd.h>

#include <array>
#include <string>
#include <vector>

#include "core/config_error.h"
#include "core/error.h"
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/files.h"
#include "data/pack.h"

namespace plait::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string compressed(const std::string& text, int level = 3) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), level));
  return out;
}

std::string random_text(std::size_t bytes) {
  std::string text;
  std::uint32_t seed = 3;
  while (text.size() < bytes) text += static_cast<char>(' ' + ((seed = seed * 1664525u + 1013904223u) >> 25) % 95);
  return text;
}

std::vector<std::string> lines_of(const std::string& path) {
  const DataFile file(path);
  LineReader reader(file);
  std::vector<std::string> lines;
  while (const auto line = reader.next()) lines.emplace_back(*line);
  return lines;
}

TEST(Lines, EndWithABreakOrTheFile) {
  const DataFolder folder;
  EXPECT_THAT(lines_of(folder.write("a", "one\n\ntwo\r\nthree")), ElementsAre("one", "", "two", "three"));
  EXPECT_THAT(lines_of(folder.write("b", "one\n")), ElementsAre("one"));
  EXPECT_TRUE(lines_of(folder.write("c", "")).empty());
  const std::string longest = random_text(5'000'000);
  EXPECT_THAT(lines_of(folder.write("d", longest + "\n" + longest + "\nx")), ElementsAre(longest, longest, "x"));
}

// Before there is more of it in memory.
TEST(Lines, ThatAreTooLongAreRefusedByNumber) {
  const DataFolder folder;
  constexpr std::size_t most = std::size_t{256} << 20;
  const std::string path = folder.write("a", "one\n");
  std::filesystem::resize_file(path, 4 + most);  // with zeros, which take no room on the disk
  std::ofstream(path, std::ios::binary | std::ios::app) << "\ntwo\n";
  const DataFile good(path);
  LineReader lines(good);
  EXPECT_EQ(lines.next(), "one");
  EXPECT_EQ(lines.next().value().size(), most);
  EXPECT_EQ(lines.next(), "two");
  for (const std::size_t more : {std::size_t{1}, std::size_t{2000}}) {  // what is read at a time may hold its end
    std::filesystem::resize_file(path, 4);
    std::filesystem::resize_file(path, 4 + most + more);
    std::ofstream(path, std::ios::binary | std::ios::app) << "\n";
    EXPECT_THAT(config_error([&] { lines_of(path); }), HasSubstr("a:2: is a line of more than 268435456 bytes")) << more;
  }
}

TEST(Zstd, IsReadAsTheTextThatItHolds) {
  const DataFolder folder;
  const std::string text = random_text(3'000'000);
  for (const int level : {1, 19}) EXPECT_EQ(whole_text(DataFile(folder.write("a.zst", compressed(text, level)))), text);
  const std::string skippable = std::string("\x50\x2a\x4d\x18\x03\x00\x00\x00", 8) + "abc";
  EXPECT_EQ(whole_text(DataFile(folder.write("b.zst", compressed("one ") + skippable + compressed("") + compressed("two")))),
            "one two");
  EXPECT_EQ(whole_text(DataFile(folder.write("c.zst", ""))), "");
}

TEST(Zstd, ThatIsDamagedOrCutOffIsNamed) {
  const DataFolder folder;
  const std::string whole = compressed(random_text(1'000'000));
  const auto refusal = [&](const std::string& bytes) {
    const std::string path = folder.write("bad.txt.zst", bytes);
    return config_error([&] { open_dataset(data_config({path}, 8), *make_byte_tokenizer(), 256); });
  };
  EXPECT_THAT(refusal("plain text"),
              HasSubstr("bad.txt.zst: is not whole zstd data: Unknown frame descriptor (at byte offset 0)"));
  EXPECT_THAT(refusal(whole.substr(0, 500'000)),
              HasSubstr("bad.txt.zst: is truncated: a zstd frame does not end (at byte offset 500000)"));
  EXPECT_THAT(refusal(whole + "more"), HasSubstr("is not whole zstd data"));
  std::string damaged = whole;
  damaged[1] = 'x';
  EXPECT_THAT(refusal(damaged), HasSubstr("is not whole zstd data"));
  for (std::size_t bytes = 1; bytes < 40; ++bytes)
    EXPECT_THAT(refusal(whole.substr(0, bytes)), HasSubstr("is truncated")) << bytes;
  // A frame that asks for a window of 512 MiB (window descriptor 19 << 3), and would be given that memory.
  EXPECT_THAT(refusal(std::string("\x28\xb5\x2f\xfd\x00\x98\x01\x00\x00", 9)), HasSubstr("more than 128 MiB"));
}

// Its bytes would be learned as if they were text.
TEST(Compressed, TextIsNotTakenForTextUnderAnotherName) {
  const DataFolder folder;
  const std::string gzip = "\x1f\x8b\x08 and more";
  for (const auto& [name, bytes, said] : std::vector<std::array<std::string, 3>>{
           {"a.jsonl.gz", gzip, "is compressed by gzip, not text: decompress it (gunzip)"},
           {"a.jsonl", gzip, "is compressed by gzip"},
           {"a.txt", compressed("some text"), "is compressed by zstd, not text: name it NAME.zst"},
           {"a.xz", std::string("\xfd\x37zXZ\0 and more", 15), "is compressed by xz"},
           {"a.parquet", "PAR1\x15 and more", "is a Parquet file"}}) {
    const std::string path = folder.write(name, bytes);
    const Config config = data_config({path}, 2);
    for (const std::string& error :
         {config_error([&] { open_dataset(config, *make_byte_tokenizer(), 256); }),
          config_error([&] { pack({{path}, folder / "out", 2, 2, false, config.data}, *make_byte_tokenizer()); })})
      EXPECT_THAT(error, testing::AllOf(HasSubstr(path), HasSubstr(said)));
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
}

TEST(Jsonl, LinesAreDocumentsWhateverHoldsThem) {
  const DataFolder folder;
  const std::string lines =
      "{\"text\": \"caf\\u00e9\", \"id\": 1}\n \n{\"id\": 2, \"text\": \"\\ud83d\\ude42\"}\r\n{\"text\": \"\"}\n";
  const std::string expected = "caf\u00e9\U0001f642";
  for (const auto& [name, bytes] : {std::pair{"a.jsonl", lines},
                                    {"b.jsonl.zst", compressed(lines)},
                                    {"c.txt.zst", compressed(expected)},
                                    {"d.txt", expected}}) {
    const auto dataset = open_dataset(data_config({folder.write(name, bytes)}, 8), *make_byte_tokenizer(), 256);
    ASSERT_EQ(dataset->train_tokens(), 9) << name;
    std::vector<std::int32_t> tokens(8), targets(8);
    dataset->train_sample(1, 0, {tokens, targets});
    EXPECT_EQ(make_byte_tokenizer()->decode(tokens) + static_cast<char>(targets.back()), expected) << name;
  }
}

TEST(Jsonl, ABadLineIsNamed) {
  const DataFolder folder;
  const auto refusal = [&](const std::string& line, bool chat = false) {
    Config config = data_config({folder.write("bad.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n")}, 2);
    if (chat) {
      config.data.chat_template = ChatFormat::custom;
      config.data.custom_template.assistant_end = "\n";
    }
    const std::string why = config_error([&] { open_dataset(config, *make_byte_tokenizer(), 256); });
    EXPECT_THAT(why, HasSubstr("bad.jsonl:3: "));
    // Packing says the same, and leaves nothing.
    EXPECT_EQ(
        config_error([&] { pack({{folder / "bad.jsonl"}, folder / "out", 2, 2, false, config.data}, *make_byte_tokenizer()); }),
        why);
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
    return why;
  };
  EXPECT_THAT(refusal("{\"text\": \"a\"} x"), HasSubstr("is not JSON (at byte 15)"));
  EXPECT_THAT(refusal("{\"text\": \"a"), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal(std::string("{\"text\": \"a\"}\0{\"text\": \"b\"}", 27)), HasSubstr("is not JSON (at byte 14)"));
  EXPECT_THAT(refusal("{\"text\": \"\\ud800\"}"), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal("{\"text\": \"\xff\"}"), HasSubstr("is not UTF-8 text"));
  EXPECT_THAT(refusal(std::string(101, '[')), HasSubstr("nested deeper than 100 levels"));
  EXPECT_THAT(refusal("{\"text\": \"a\", \"score\": 1e999}"), HasSubstr("has a number beyond 1.8e308"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(refusal("{\"txt\": \"a\"}"), HasSubstr("has no 'text' (data.jsonl.text_key)"));
  EXPECT_THAT(refusal("{\"text\": 1}"), HasSubstr("'text' must be a string"));
  EXPECT_THAT(refusal("{\"messages\": []}"), HasSubstr("is a chat: set data.chat_template"));
  EXPECT_THAT(refusal("{\"messages\": []}", true), HasSubstr("messages must be a list"));
  EXPECT_THAT(refusal("{\"messages\": [{\"role\": \"user\"}]}", true), HasSubstr("messages[0].content must be a string"));
  EXPECT_THAT(refusal("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}", true),
              HasSubstr("'tools' has no place in a chat template of plait's"));
  EXPECT_THAT(refusal("{}", true), HasSubstr("has no 'text' (data.jsonl.text_key) and no 'messages'"));
  EXPECT_THAT(refusal("{\"messages\": [{\"role\": \"system\", \"content\": \"\"}]}", true), HasSubstr("no system messages"));
}

TEST(Jsonl, TrainsNoSentencePieceModel) {
  const DataFolder folder;
  EXPECT_THAT(config_error([&] { train_sentencepiece({folder.write("a.jsonl", "{}")}, 300); }),
              HasSubstr("is JSONL: train SentencePiece on text"));
}

// Once every piece is in use, four times the text takes no more: 96 MB of text more, 384 MB of tokens.
TEST(Jsonl, ArePackedInMemoryThatDoesNotGrow) {
  const DataFolder folder;
  const std::string line = "{\"text\": \"" + some_text(8).substr(0, 8) + std::string(40'000, 'x') + "\"}\n";
  std::string chunk;
  while (chunk.size() < 16'000'000) chunk += line;
  const std::string frame = compressed(chunk, 1);
  // Gives the most memory that the process has used until then, in KiB: other tests beside these may have used more.
  const auto peak_after_packing = [&](int frames) {
    const std::string name = std::to_string(frames);
    std::string file;
    for (int i = 0; i < frames; ++i) file += frame;
    folder.write(name + ".jsonl.zst", file);
    const PackResult result =
        pack({{folder / (name + ".jsonl.zst")}, folder / ("out" + name), 100'000'000, 2}, *make_byte_tokenizer());
    EXPECT_GT(result.tokens, frames * 15'900'000);
    EXPECT_EQ(result.documents, frames * std::ssize(chunk) / std::ssize(line));
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
  };
  [[maybe_unused]] const auto few = peak_after_packing(2), many = peak_after_packing(8);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what is freed
  EXPECT_LT(many - few, 60'000) << "KiB";
#endif
}

}  // namespace
}  // namespace plait::data
