// Token data of Megatron-LM: NAME.bin and NAME.idx.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/config_error.h"
#include "core/error.h"
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/megatron_index.h"
#include "data/token_shard.h"

namespace plait::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::string packed(T value) {
  return bytes_of(std::vector<T>{value});
}

// What IndexedDatasetBuilder writes, as it writes it.
struct IndexBytes {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int32_t> lengths = {3, 0, 2};
  std::vector<std::int64_t> pointers = {0, 6, 6};
  std::vector<std::int64_t> documents = {0, 2, 3};
  std::string modes = {};

  std::string text() const {
    return magic + packed(version) + packed(type) + packed<std::uint64_t>(lengths.size()) +
           packed<std::uint64_t>(documents.size()) + bytes_of(lengths) + bytes_of(pointers) + bytes_of(documents) + modes;
  }
};

template <typename Stored>
std::vector<std::int32_t> tokens_stored_as(std::uint8_t type) {
  const DataFolder folder;
  IndexBytes index;
  index.type = type;
  index.pointers = {0, 3 * sizeof(Stored), 3 * sizeof(Stored)};
  folder.write("a.idx", index.text());
  const TokenShard shard(folder.write("a.bin", bytes_of(std::vector<Stored>{1, 2, 100, 4, 5})));
  EXPECT_EQ(shard.format(), ShardFormat::megatron);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shard.tokens()));
  shard.read(0, tokens, 101);
  std::vector<std::int32_t> two(2);
  EXPECT_THAT(
      config_error([&] { shard.read(1, two, 100); }),
      HasSubstr("holds token 100, outside the vocabulary of 100 (at byte offset " + std::to_string(2 * sizeof(Stored)) + ")"));
  return tokens;
}

TEST(Megatron, ReadsTokensOfEveryIntegerType) {
  const auto expected = ElementsAre(1, 2, 100, 4, 5);
  EXPECT_THAT(tokens_stored_as<std::uint8_t>(1), expected);
  EXPECT_THAT(tokens_stored_as<std::int8_t>(2), expected);
  EXPECT_THAT(tokens_stored_as<std::int16_t>(3), expected);
  EXPECT_THAT(tokens_stored_as<std::int32_t>(4), expected);
  EXPECT_THAT(tokens_stored_as<std::int64_t>(5), expected);
  EXPECT_THAT(tokens_stored_as<std::uint16_t>(8), expected);
}

TEST(Megatron, NoTokenIsNegativeOrTooLarge) {
  const DataFolder folder;
  IndexBytes index{.type = 5, .lengths = {2}, .pointers = {0}, .documents = {0, 1}};
  folder.write("a.idx", index.text());
  const TokenShard shard(folder.write("a.bin", bytes_of(std::vector<std::int64_t>{-1, std::int64_t{1} << 40})));
  std::vector<std::int32_t> token(1);
  EXPECT_THAT(config_error([&] { shard.read(0, token, 100); }), HasSubstr("holds token -1"));
  EXPECT_THAT(config_error([&] { shard.read(1, token, 100); }), HasSubstr("holds token 1099511627776"));
}

TEST(Megatron, NothingInAnIndexIsTrusted) {
  const DataFolder folder;
  const std::string bin = folder.write("a.bin", std::string(10, '\1'));
  const auto refusal = [&](const std::string& text) {
    const std::string path = folder.write("a.idx", text);
    const std::string error = config_error([&] { read_megatron_index(path, 10); });
    EXPECT_THAT(error, HasSubstr(path));
    return error;
  };
  const auto with = [](auto change) {
    IndexBytes index;
    change(index);
    return index.text();
  };
  const MegatronIndex good = read_megatron_index(folder.write("a.idx", IndexBytes{}.text()), 10);
  EXPECT_EQ(good.tokens, 5);
  EXPECT_THAT(good.marks.documents(), ElementsAre(0, 3));
  EXPECT_THAT(refusal(IndexBytes{}.text().substr(0, 33)), HasSubstr("is truncated: an index has a header of 34 bytes"));
  EXPECT_THAT(refusal(with([](auto& i) { i.magic[0] = 'X'; })), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(refusal(with([](auto& i) { i.version = 2; })), HasSubstr("has version 2, must be 1 (at byte offset 9)"));
  for (const std::uint8_t type : {0, 6, 7, 9, 255})
    EXPECT_THAT(refusal(with([&](auto& i) { i.type = type; })), HasSubstr("(at byte offset 17)")) << int{type};
  EXPECT_THAT(refusal(IndexBytes{}.text().substr(0, 80)), HasSubstr("document indices, but has"));
  EXPECT_THAT(refusal(IndexBytes{}.text() + "x"), HasSubstr("document indices, but has"));
  EXPECT_THAT(refusal(with([](auto& i) { i.modes = std::string(3, '\0'); })), HasSubstr("modes of multimodal sequences"));
  for (const std::uint64_t many : {std::uint64_t{0}, std::uint64_t{100}, ~std::uint64_t{0}, std::uint64_t{1} << 62}) {
    std::string text = IndexBytes{}.text();
    EXPECT_THAT(refusal(text.replace(18, 8, packed(many))), HasSubstr("sequences, must be 1 to")) << many;
    text = IndexBytes{}.text();
    EXPECT_THAT(refusal(text.replace(26, 8, packed(many))), HasSubstr("document indices")) << many;
  }
  EXPECT_THAT(refusal(with([](auto& i) { i.lengths[0] = -3; })), HasSubstr("gives sequence 0 a length of -3 tokens"));
  EXPECT_THAT(refusal(with([](auto& i) { i.lengths[2] = INT32_MAX; })), HasSubstr("must be 0 to 2"));
  EXPECT_THAT(refusal(with([](auto& i) { i.lengths[2] = 1; })),
              HasSubstr("has sequences of 8 bytes in all, but the .bin has 10"));
  for (const std::int64_t pointer : {std::int64_t{-6}, std::int64_t{4}, std::int64_t{8}, INT64_MIN})
    EXPECT_THAT(refusal(with([&](auto& i) { i.pointers[1] = pointer; })), HasSubstr("lets sequence 1 begin at byte"))
        << pointer;
  for (const std::int64_t start : {std::int64_t{-1}, std::int64_t{4}, INT64_MAX})
    EXPECT_THAT(refusal(with([&](auto& i) { i.documents[1] = start; })), HasSubstr("lets document 1 begin with sequence"))
        << start;
  EXPECT_THAT(refusal(with([](auto& i) { i.documents[0] = 1; })), HasSubstr("must be 0 to 0"));
}

// As `data.train: [folder/*]`, which matches the index too.
TEST(Megatron, IsTrainedOnBesideOtherShards) {
  const DataFolder folder;
  std::vector<std::uint16_t> first(60), second(40);
  std::iota(first.begin(), first.end(), std::uint16_t{0});
  std::iota(second.begin(), second.end(), std::uint16_t{60});
  folder.write("s/a.idx", IndexBytes{.lengths = {50, 10}, .pointers = {0, 100}, .documents = {0, 1, 2}}.text());
  folder.write("s/a.bin", bytes_of(first));
  folder.write("s/b.bin", shard_header(20240520, 1, 40) + bytes_of(second));
  for (const char* tokenizer : {"tokens", "bytes"}) {
    Config config = data_config({folder / "s/*"}, 33);
    config.data.tokenizer = tokenizer;
    config.data.shuffle = false;
    config.model.vocab = 256;
    const auto dataset = open_dataset(config, *create_tokenizer(config), 256);
    EXPECT_EQ(dataset->train_tokens(), 100);
    std::vector<std::int32_t> tokens(33), targets(33);
    dataset->train_sample(1, 1, {tokens, targets});
    EXPECT_EQ(tokens.front(), 33);
    EXPECT_EQ(targets.back(), 66);
    config.data.train = {folder / "s/a.idx"};
    EXPECT_THAT(config_error([&] { open_dataset(config, *create_tokenizer(config), 256); }),
                HasSubstr("give the .bin beside it"));
  }
}

// With the tokenizer `bytes` any file could be text: an index says that it is not.
TEST(Megatron, WhatIsLeftOfItIsNotTakenForText) {
  const DataFolder folder;
  folder.write("s/a.txt", some_text(100));
  const std::string bin = folder.write("s/train.bin", bytes_of(std::vector<std::uint16_t>(60, 7)));
  const auto refusal = [&](const char* tokenizer) {
    Config config = data_config({folder / "s/*"}, 10);
    config.data.tokenizer = tokenizer;
    config.model.vocab = 256;
    return config_error([&] { open_dataset(config, *create_tokenizer(config), 256); });
  };
  for (const char* damaged : {"", "XMIDIDX"}) {
    folder.write("s/train.idx", damaged);
    for (const char* tokenizer : {"tokens", "bytes"}) {
      EXPECT_THAT(refusal(tokenizer), testing::AllOf(HasSubstr(bin + ": "), HasSubstr("train.idx beside it is damaged"),
                                                     HasSubstr("copy both anew")));
    }
  }
  folder.write("s/train.idx", IndexBytes{}.text());
  folder.write("s/train.bin", "");
  EXPECT_THAT(refusal("bytes"), HasSubstr(bin + ": is empty: train.idx beside it says that it holds tokens of Megatron-LM"));
  std::filesystem::remove(bin);
  EXPECT_THAT(refusal("bytes"), HasSubstr("train.idx: is the index of train.bin, which is not beside it: copy it there"));
}

}  // namespace
}  // namespace plait::data
