#include "data/token_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/data_files.h"
#include "data/pack.h"

namespace plait::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string shard_refusal(const std::string& path) {
  try {
    TokenShard shard(path);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.problems().at(0).rule;
  }
  return "accepted";
}

std::vector<std::int32_t> tokens_of(const std::string& path, std::int64_t vocab = 1 << 30) {
  const TokenShard shard(path);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shard.tokens()));
  shard.read(0, tokens, vocab);
  return tokens;
}

TEST(Shards, ReadTheThreeFormats) {
  const DataFolder folder;
  const std::vector<std::uint16_t> narrow = {1, 50256, 3};
  const std::vector<std::uint32_t> wide = {1, 128255, 3};
  EXPECT_THAT(tokens_of(folder.write("a.bin", shard_header(20240520, 1, 3) + bytes_of(narrow))), ElementsAre(1, 50256, 3));
  EXPECT_THAT(tokens_of(folder.write("b.bin", shard_header(20240801, 7, 3) + bytes_of(wide))), ElementsAre(1, 128255, 3));
  for (const char* name : {"train.bin", "val.bin", "mine.u16.bin"}) {
    const std::string path = folder.write(name, bytes_of(narrow));
    EXPECT_EQ(TokenShard(path).format(), ShardFormat::raw_uint16);
    EXPECT_THAT(tokens_of(path), ElementsAre(1, 50256, 3));
    EXPECT_TRUE(is_token_shard(path));  // with a tokenizer too: it is no text
  }
  EXPECT_FALSE(is_token_shard(folder.write("other.bin", bytes_of(narrow))));
}

TEST(Shards, RefuseWhatIsDamagedNamingTheOffset) {
  const DataFolder folder;
  const std::string body = bytes_of(std::vector<std::uint16_t>(100, 5));
  const std::string whole = shard_header(20240520, 1, 100) + body;
  EXPECT_THAT(shard_refusal(folder.write("a.bin", "")), HasSubstr("is empty (at byte offset 0)"));
  EXPECT_THAT(shard_refusal(folder.write("b.bin", body)),
              HasSubstr("wrong magic number 327685, must be 20240520 (uint16) or 20240801"));
  EXPECT_THAT(shard_refusal(folder.write("b2.bin", "x")), HasSubstr("wrong magic number 0"));
  EXPECT_THAT(shard_refusal(folder.write("c.bin", whole.substr(0, 1000))),
              HasSubstr("is truncated: the header has 1024 bytes (at byte offset 1000)"));
  EXPECT_THAT(
      shard_refusal(folder.write("d.bin", whole.substr(0, 1100))),
      HasSubstr("is truncated: the header says 100 tokens, 1224 bytes in all, the file has 1100 (at byte offset 1100)"));
  EXPECT_THAT(shard_refusal(folder.write("e.bin", whole + "x")), HasSubstr("is longer than its header says"));
  EXPECT_THAT(shard_refusal(folder.write("f.bin", shard_header(20240520, 2, 100) + body)),
              HasSubstr("has version 2, must be 1"));
  EXPECT_THAT(shard_refusal(folder.write("g.bin", shard_header(20240801, 1, 100) + body)),
              HasSubstr("has version 1, must be 7"));
  EXPECT_THAT(shard_refusal(folder.write("h.bin", shard_header(20240520, 1, 0))), HasSubstr("a header that says 0 tokens"));
  EXPECT_THAT(shard_refusal(folder.write("i.bin", shard_header(20240520, 1, -5) + body)),
              HasSubstr("a header that says -5 tokens"));
  EXPECT_THAT(shard_refusal(folder.write("train.bin", "odd")), HasSubstr("odd number of bytes"));
  EXPECT_EQ(shard_refusal(folder.write("j.bin", whole)), "accepted");
}

TEST(Shards, CheckTokensAsTheyAreUsed) {
  const DataFolder folder;
  const std::string path =
      folder.write("w.bin", shard_header(20240801, 7, 3) + bytes_of(std::vector<std::uint32_t>{1, 0xfffffff0u, 2}));
  const TokenShard shard(path);
  std::vector<std::int32_t> one(1);
  EXPECT_NO_THROW(shard.read(0, one, 10));
  EXPECT_NO_THROW(shard.read(2, one, 10));
  try {
    shard.read(1, one, 10);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("w.bin: holds token 4294967280, outside the vocabulary of 10 (at byte offset 1028)"));
  }
}

TEST(Shards, AnUnfinishedOneLeavesNothingBehind) {
  const DataFolder folder;
  {
    TokenShardWriter writer(folder / "a.bin", 256);
    writer.append(std::vector<std::int32_t>{1, 2, 3});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
}

TEST(Pack, CutsTheTokensOfAllFilesIntoShards) {
  const DataFolder folder;
  const std::string a = some_text(250, 1), b = some_text(130, 2);
  folder.write("text/a.txt", a);
  folder.write("text/b.txt", b);
  const PackResult result = pack({{folder / "text/*"}, folder / "out", 100}, *make_byte_tokenizer());
  EXPECT_EQ(result.files, 2);
  EXPECT_EQ(result.tokens, 380);
  ASSERT_EQ(result.shards.size(), 4u);
  std::string text;
  for (const auto& shard : result.shards) text += make_byte_tokenizer()->decode(tokens_of(shard.string()));
  EXPECT_EQ(text, a + b);
  EXPECT_EQ(TokenShard(result.shards[0]).format(), ShardFormat::uint16);
  EXPECT_EQ(TokenShard(result.shards[3]).tokens(), 80);
  EXPECT_EQ(load_tokenizer(folder / "out")->kind(), "bytes");
}

TEST(Pack, UsesWideTokensWhereTheVocabularyNeedsThem) {
  const DataFolder folder;
  TokenShardWriter narrow(folder / "n.bin", 65536), wide(folder / "w.bin", 65537);
  const std::vector<std::int32_t> high_narrow = {0, 65535}, high_wide = {0, 65536};
  narrow.append(high_narrow);
  wide.append(high_wide);
  narrow.finish();
  wide.finish();
  EXPECT_EQ(TokenShard(folder / "n.bin").format(), ShardFormat::uint16);
  EXPECT_EQ(TokenShard(folder / "w.bin").format(), ShardFormat::uint32);
  EXPECT_EQ(tokens_of(folder / "n.bin"), high_narrow);
  EXPECT_EQ(tokens_of(folder / "w.bin"), high_wide);
}

TEST(Pack, RefusesAFolderThatHoldsShards) {
  const DataFolder folder;
  const std::string text = folder.write("a.txt", some_text(50));
  pack({{text}, folder / "out", 100}, *make_byte_tokenizer());
  try {
    pack({{text}, folder / "out", 100}, *make_byte_tokenizer());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds shard_000000.bin already"));
  }
  EXPECT_THROW(pack({{folder / "none"}, folder / "out2", 100}, *make_byte_tokenizer()), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder / "out2")) << "nothing is written before the files are known to exist";
  EXPECT_THROW(pack({{text, folder.write("empty.txt", "")}, folder / "out2", 100}, *make_byte_tokenizer()), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder / "out2"));
  EXPECT_THROW(pack({{text}, folder / "out3", 0}, *make_byte_tokenizer()), ConfigError);
}

}  // namespace
}  // namespace plait::data
