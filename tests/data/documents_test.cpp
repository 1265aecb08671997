// Where documents begin, what is masked, and what samples make of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "core/config_error.h"
#include "core/error.h"
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/pack.h"
#include "data/token_shard.h"

namespace plait::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Numbers = std::vector<std::int32_t>;

struct MarkedSample {
  Numbers tokens, targets, starts;
  friend bool operator==(const MarkedSample&, const MarkedSample&) = default;
};

MarkedSample marked_sample(const Dataset& dataset, std::int64_t step, std::int64_t index) {
  const auto length = static_cast<std::size_t>(dataset.sequence_length());
  MarkedSample sample{Numbers(length), Numbers(length), Numbers(length)};
  dataset.train_sample(step, index, {sample.tokens, sample.targets, sample.starts});
  return sample;
}

Config documents_config(std::vector<std::string> files, std::int64_t length, Documents documents = Documents::separate) {
  Config config = data_config(std::move(files), length);
  config.data.documents = documents;
  config.data.shuffle = false;
  config.train.global_batch = 1;
  return config;
}

std::shared_ptr<const Dataset> open_documents(const Config& config, std::int64_t vocab = 256) {
  Config with_vocab = config;
  with_vocab.model.vocab = vocab;
  return open_dataset(with_vocab, *create_tokenizer(with_vocab), vocab);
}

// Sample n of a data set that is not shuffled.
MarkedSample sample_at(const Dataset& dataset, std::int64_t number) { return marked_sample(dataset, number + 1, 0); }

TEST(DocumentMarks, AreThoseOfAPlainList) {
  std::mt19937 draw(5);
  DocumentMarks marks;
  std::vector<TokenMarks> plain(300);
  for (std::size_t i = 0; i < plain.size();) {
    if (draw() % 3 == 0) {
      marks.begin_document(static_cast<std::int64_t>(i));
      plain[i] |= begins_document;
    }
    const std::size_t end = std::min(plain.size(), i + draw() % 9 + 1);
    if (draw() % 2 == 0) {
      marks.mask(static_cast<std::int64_t>(i), static_cast<std::int64_t>(end));
      for (std::size_t k = i; k < end; ++k) plain[k] |= masked;
    }
    i = end;
  }
  DocumentMarks joined = marks.part(0, 137);
  joined.append(marks.part(137, 163), 137);
  EXPECT_EQ(joined.documents(), marks.documents());
  EXPECT_EQ(joined.masked_runs(), marks.masked_runs());
  for (std::size_t first = 0; first < plain.size(); ++first) {
    std::vector<TokenMarks> here(std::min<std::size_t>(40, plain.size() - first));
    marks.add_to(here, static_cast<std::int64_t>(first));
    EXPECT_EQ(here, std::vector(plain.begin() + static_cast<std::ptrdiff_t>(first),
                                plain.begin() + static_cast<std::ptrdiff_t>(first + here.size())));
  }
}

TEST(Documents, OfSeveralFilesAreApartOrJoined) {
  const DataFolder folder;
  folder.write("1.txt", "abcde");
  folder.write("2.txt", "fg");
  folder.write("3.txt", "hijklmn");
  const auto separate = open_documents(documents_config({folder / "*.txt"}, 6));
  EXPECT_EQ(sample_at(*separate, 0),
            (MarkedSample{{'a', 'b', 'c', 'd', 'e', 'f'}, {'b', 'c', 'd', 'e', -1, 'g'}, {0, 0, 0, 0, 0, 5}}));
  EXPECT_EQ(sample_at(*separate, 1),
            (MarkedSample{{'g', 'h', 'i', 'j', 'k', 'l'}, {-1, 'i', 'j', 'k', 'l', 'm'}, {0, 1, 1, 1, 1, 1}}));
  const auto joined = open_documents(documents_config({folder / "*.txt"}, 6, Documents::joined));
  EXPECT_EQ(sample_at(*joined, 1),
            (MarkedSample{{'g', 'h', 'i', 'j', 'k', 'l'}, {'h', 'i', 'j', 'k', 'l', 'm'}, {0, 0, 0, 0, 0, 0}}));
}

// The end that is kept of a file does not go on in the next one.
TEST(Documents, BeginWhereAPartOfAFileIsLeftOut) {
  const DataFolder folder;
  folder.write("1.jsonl", "{\"text\": \"abcdefgh\"}\n");
  folder.write("2.jsonl", "{\"text\": \"ijklmnop\"}\n");
  Config config = documents_config({folder / "*.jsonl"}, 3);
  config.data.validation_fraction = 0.25;
  const auto dataset = open_documents(config);
  EXPECT_EQ(dataset->validation_tokens(), 4);
  MarkedSample sample{Numbers(3), Numbers(3), Numbers(3)};
  dataset->validation_sample(0, 1, {sample.tokens, sample.targets, sample.starts});
  EXPECT_EQ(sample, (MarkedSample{{'g', 'h', 'o'}, {'h', -1, 'p'}, {0, 0, 2}}));
}

TEST(Documents, OfShardsBeginOrEndWithAToken) {
  const DataFolder folder;
  const std::vector<std::uint16_t> first = {9, 1, 2, 9, 3}, second = {4, 9, 9, 5, 6};
  folder.write("a.bin", shard_header(20240520, 1, 5) + bytes_of(first));
  folder.write("b.bin", shard_header(20240520, 1, 5) + bytes_of(second));
  Config config = documents_config({folder / "*.bin"}, 9);
  config.data.tokenizer = "tokens";
  EXPECT_THAT(config_error([&] { open_documents(config, 10); }),
              testing::AllOf(HasSubstr("a.bin: does not say where its documents begin"), HasSubstr("data.document_token.id")));
  config.data.document_token.id = 9;
  EXPECT_EQ(sample_at(*open_documents(config, 10), 0),
            (MarkedSample{{9, 1, 2, 9, 3, 4, 9, 9, 5}, {1, 2, -1, 3, 4, -1, -1, 5, 6}, {0, 0, 0, 3, 3, 3, 6, 7, 7}}));
  config.data.document_token.place = DocumentTokenPlace::end;
  EXPECT_EQ(sample_at(*open_documents(config, 10), 0),
            (MarkedSample{{9, 1, 2, 9, 3, 4, 9, 9, 5}, {-1, 2, 9, -1, 4, 9, -1, -1, 6}, {0, 1, 1, 1, 4, 4, 4, 7, 8}}));
  config.data.document_token.id = 10;
  EXPECT_THAT(config_error([&] { open_documents(config, 10); }), HasSubstr("data.document_token.id=10: must be below"));
}

TEST(Documents, OfMegatronAreInItsIndex) {
  const DataFolder folder;
  const auto packed = [](auto value) { return bytes_of(std::vector{value}); };
  folder.write("a.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 4, 5, 6, 7}));
  folder.write("a.idx", std::string("MMIDIDX\0\0", 9) + packed(std::uint64_t{1}) + packed(std::uint8_t{8}) +
                            packed(std::uint64_t{4}) + packed(std::uint64_t{3}) +
                            bytes_of(std::vector<std::int32_t>{2, 1, 0, 4}) + bytes_of(std::vector<std::int64_t>{0, 4, 6, 6}) +
                            bytes_of(std::vector<std::int64_t>{0, 2, 4}));
  Config config = documents_config({folder / "a.bin"}, 6);
  config.data.tokenizer = "tokens";
  EXPECT_EQ(sample_at(*open_documents(config, 10), 0),
            (MarkedSample{{1, 2, 3, 4, 5, 6}, {2, 3, -1, 5, 6, 7}, {0, 0, 0, 3, 3, 3}}));
}

// As its builder leaves it that was never told where a document ends: sequences may be anything.
TEST(Documents, OfMegatronThatItsIndexDoesNotKnowNeedAToken) {
  const DataFolder folder;
  const auto packed = [](auto value) { return bytes_of(std::vector{value}); };
  folder.write("a.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 9, 4, 5, 6, 7}));
  Config config = documents_config({folder / "a.bin"}, 6);
  config.data.tokenizer = "tokens";
  for (const std::vector<std::int64_t>& documents : {std::vector<std::int64_t>{}, {0}}) {
    folder.write("a.idx", std::string("MMIDIDX\0\0", 9) + packed(std::uint64_t{1}) + packed(std::uint8_t{8}) +
                              packed(std::uint64_t{2}) + packed(std::uint64_t{documents.size()}) +
                              bytes_of(std::vector<std::int32_t>{3, 4}) + bytes_of(std::vector<std::int64_t>{0, 6}) +
                              bytes_of(documents));
    config.data.document_token.id = -1;
    config.data.documents = Documents::separate;
    EXPECT_THAT(
        config_error([&] { open_documents(config, 10); }),
        testing::AllOf(HasSubstr("a.bin: does not say where its documents begin"), HasSubstr("data.document_token.id")));
    config.data.document_token.id = 9;
    EXPECT_EQ(sample_at(*open_documents(config, 10), 0),
              (MarkedSample{{1, 2, 9, 4, 5, 6}, {2, -1, 4, 5, 6, 7}, {0, 0, 2, 2, 2, 2}}));
    config.data.document_token.id = -1;
    config.data.documents = Documents::joined;
    EXPECT_EQ(open_documents(config, 10)->train_tokens(), 7);
  }
}

// A chat of bytes: what is not in brackets is masked.
const char* const two_chats =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": \"assistant\", \"content\": \"cd\"}]}\n"
    "\n"
    "{\"text\": \"xyz\"}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"e\"}, {\"role\": \"assistant\", \"content\": \"f\"}]}";

void let_chat(DataConfig& data) {
  data.chat_template = ChatFormat::custom;
  data.custom_template.user_prefix = ">";
  data.custom_template.assistant_prefix = "<";
  data.custom_template.assistant_end = ".";
}

std::string shown(const Numbers& tokens) {
  std::string text;
  for (const std::int32_t token : tokens) text += token < 0 ? '_' : static_cast<char>(token);
  return text;
}

TEST(Documents, OfChatsLearnTheAssistantOnly) {
  const DataFolder folder;
  folder.write("a.jsonl", two_chats);
  Config config = documents_config({folder / "a.jsonl"}, 13, Documents::joined);
  let_chat(config.data);
  const MarkedSample joined = sample_at(*open_documents(config), 0);
  EXPECT_EQ(shown(joined.tokens), ">ab<cd.xyz>e<");
  EXPECT_EQ(shown(joined.targets), "___cd.xyz___f");
  config.data.documents = Documents::separate;
  const MarkedSample separate = sample_at(*open_documents(config), 0);
  EXPECT_EQ(shown(separate.targets), "___cd._yz___f");
  EXPECT_EQ(separate.starts, (Numbers{0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 10, 10, 10}));
}

// Whatever the size of a shard, and the number of threads.
TEST(Documents, ArePackedWithTheirMarks) {
  const DataFolder folder;
  std::string lines;
  for (std::size_t i = 0; i < 16; ++i) {
    std::string text = some_text(i, 7);
    std::ranges::replace(text, '\n', ' ');
    lines += std::string(two_chats) + "\n{\"text\": \"" + text + "\"}\n";
  }
  folder.write("a.jsonl", lines);
  Config config = documents_config({folder / "a.jsonl"}, 16);
  let_chat(config.data);
  const auto direct = open_documents(config);
  for (const std::int64_t shard_tokens : {17, 100, 1'000'000}) {
    const std::string out = folder / std::to_string(shard_tokens);
    const PackResult result = pack({{folder / "a.jsonl"}, out, shard_tokens, 3, false, config.data}, *make_byte_tokenizer());
    EXPECT_EQ(result.tokens, direct->train_tokens());
    EXPECT_EQ(result.documents, 16 * 4 - 1) << "one text is empty";
    Config packed = documents_config({out + "/*"}, 16);
    for (const Documents documents : {Documents::joined, Documents::separate}) {
      config.data.documents = packed.data.documents = documents;
      const auto from_lines = open_documents(config), from_shards = open_documents(packed);
      for (std::int64_t n = 0; n < (direct->train_tokens() - 1) / 16; ++n)
        ASSERT_EQ(sample_at(*from_shards, n), sample_at(*from_lines, n)) << shard_tokens << " " << n;
    }
  }
}

// The second shard begins within a document, which is not that of the text before it.
TEST(Documents, OfATextEndWithIt) {
  const DataFolder folder;
  folder.write("1.txt", "xy");
  pack({{folder.write("a.txt", "abcdefgh")}, folder / "out", 5, 1}, *make_byte_tokenizer());
  const auto dataset = open_documents(documents_config({folder / "1.txt", folder / "out/shard_000001.bin"}, 4));
  EXPECT_EQ(sample_at(*dataset, 0), (MarkedSample{{'x', 'y', 'f', 'g'}, {'y', -1, 'g', 'h'}, {0, 0, 2, 2}}));
}

TEST(Documents, OfAShardWithoutItsIndexAreNotGuessed) {
  const DataFolder folder;
  folder.write("a.jsonl", two_chats);
  Config config = documents_config({folder / "a.jsonl"}, 4, Documents::joined);
  let_chat(config.data);
  pack({{folder / "a.jsonl"}, folder / "out", 1000, 1, false, config.data}, *make_byte_tokenizer());
  Config packed = documents_config({folder / "out/*.bin"}, 4, Documents::joined);
  EXPECT_EQ(open_documents(packed)->train_tokens(), 15);
  std::filesystem::remove(folder / "out/shard_000000.documents");
  EXPECT_THAT(config_error([&] { open_documents(packed); }),
              HasSubstr("shard_000000.bin: was packed with shard_000000.documents"));
  folder.write("a.txt", "plain");
  pack({{folder / "a.txt"}, folder / "plain", 1000, 1}, *make_byte_tokenizer());
  std::filesystem::remove(folder / "plain/shard_000000.documents");
  packed.data.train = {folder / "plain/*.bin"};
  EXPECT_EQ(open_documents(packed)->train_tokens(), 5) << "joined, and nothing is masked: the index says nothing";
  packed.data.documents = Documents::separate;
  EXPECT_THAT(config_error([&] { open_documents(packed); }), HasSubstr("was packed with"));
}

TEST(Documents, OfADamagedShardAreNotTakenForText) {
  const DataFolder folder;
  const std::string text = folder.write("a.txt", some_text(400));
  const PackResult packed = pack({{text}, folder / "s", 1000, 1, false, {}}, *make_byte_tokenizer());
  const std::filesystem::path shard = packed.shards.at(0);
  const auto opening = [&](const std::string& files) {
    return [path = folder / files] { open_documents(data_config({path}, 10)); };
  };
  EXPECT_EQ(open_documents(data_config({folder / "s/*"}, 10))->train_tokens(), 400) << "tokenizer.json is no text";
  for (const char* damaged : {"", "not what a shard begins with"}) {
    folder.write("s/shard_000000.bin", damaged);
    EXPECT_THAT(
        config_error(opening("s/shard*")),
        testing::AllOf(HasSubstr(shard.string() + ": is "),
                       HasSubstr("by shard_000000.documents beside it plait packed it; copy it anew, or pack it again")));
  }
  std::filesystem::remove(shard);
  EXPECT_THAT(config_error(opening("s/shard*")), HasSubstr("is the index of shard_000000.bin, which is not beside it"));
}

TEST(Documents, NothingInAnIndexIsTrusted) {
  const DataFolder folder;
  DocumentMarks marks;
  for (const std::int64_t first : {0, 5, 8}) marks.begin_document(first);
  marks.mask(1, 3);
  marks.mask(7, 10);
  const std::filesystem::path path = folder / "a.documents";
  write_document_index(path, 10, marks);
  std::ifstream file(path, std::ios::binary);
  const std::string good(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(read_document_index(path, 10).documents(), marks.documents());
  EXPECT_EQ(read_document_index(path, 10).masked_runs(), marks.masked_runs());
  const auto refusal = [&](std::size_t word, std::int64_t value) {
    std::string bad = good;
    bad.replace(word * 8, 8, bytes_of(std::vector{value}));
    folder.write("bad.documents", bad);
    return config_error([&] { read_document_index(folder / "bad.documents", 10); });
  };
  EXPECT_THAT(refusal(0, 7), HasSubstr("does not begin with PLAITDOC"));
  EXPECT_THAT(refusal(1, 2), HasSubstr("has version 2, must be 1 (at byte offset 8)"));
  EXPECT_THAT(refusal(2, 11), HasSubstr("is of a shard of 11 tokens, but the .bin beside it has 10"));
  EXPECT_THAT(refusal(3, 4), HasSubstr("says 4 documents and 2 masked runs, but has 56 bytes"));
  EXPECT_THAT(refusal(3, -1), HasSubstr("documents"));
  EXPECT_THAT(refusal(4, std::int64_t{1} << 62), HasSubstr("masked runs"));
  EXPECT_THAT(refusal(6, 0), HasSubstr("has token 0, must be 1 to 9 (at byte offset 48)"));
  EXPECT_THAT(refusal(7, 10), HasSubstr("has token 10, must be 6 to 9"));
  EXPECT_THAT(refusal(9, 1), HasSubstr("has token 1, must be 2 to 10"));
  EXPECT_THAT(refusal(11, 11), HasSubstr("has token 11, must be 8 to 10"));
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    folder.write("cut.documents", good.substr(0, bytes));
    EXPECT_THROW(read_document_index(folder / "cut.documents", 10), ConfigError) << bytes;
  }
}

// A run that stops and goes on, and ranks of any layout, take every window of JSONL once.
TEST(Documents, OfJsonlComeOnceInAnEpochAcrossAResume) {
  const DataFolder folder;
  std::string lines;
  for (int i = 0; i < 90; ++i) lines += "{\"text\": \"" + std::to_string(100'000 + i) + "\"}\n";
  folder.write("a.jsonl", lines);
  Config config = documents_config({folder / "a.jsonl"}, 9);
  config.data.shuffle = true;
  config.train.global_batch = 8;
  const auto before = open_documents(config);
  ASSERT_EQ(before->train_tokens(), 540);  // 59 windows
  std::map<Numbers, int> taken;
  for (std::int64_t n = 0; n < 24; ++n) ++taken[marked_sample(*before, 1 + n / 8, n % 8).tokens];
  config.train.global_batch = 5;
  const auto after = open_dataset(config, *create_tokenizer(config), 256, {3, 24});
  for (std::int64_t n = 0; n < 35; ++n) ++taken[marked_sample(*after, 4 + n / 5, n % 5).tokens];
  EXPECT_EQ(taken.size(), 59u);
}

TEST(Documents, OfAnySourcesHaveTheirShares) {
  const DataFolder folder;
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += "{\"text\": \"1234567\"}\n";
  folder.write("a.jsonl", lines);
  folder.write("b.txt", std::string(1000, 'b'));
  folder.write("c.txt", std::string(3000, 'c'));
  Config config = data_config({}, 10);
  config.data.sources = {{{folder / "a.jsonl"}, 0.137}, {{folder / "b.txt"}, 0.613}, {{folder / "c.txt"}, 0.25}};
  const auto dataset = open_documents(config);
  std::map<std::int32_t, double> share;
  constexpr std::int64_t samples = 20'000;
  for (std::int64_t n = 0; n < samples; ++n)
    share[std::max<std::int32_t>('a', marked_sample(*dataset, 1 + n / 16, n % 16).tokens[0])] += 1.0 / samples;
  EXPECT_NEAR(share['a'], 0.137, 0.001);
  EXPECT_NEAR(share['b'], 0.613, 0.001);
  EXPECT_NEAR(share['c'], 0.25, 0.001);
}

TEST(Documents, OfTextGetTheTokenBetweenThem) {
  const DataFolder folder;
  const auto tokenizer = train_sentencepiece({folder.write("a.txt", some_text(30000))}, 300);
  tokenizer->save(folder.path());
  folder.write("a.jsonl", "{\"body\": \"the event\"}\n{\"body\": \"tensor\"}\n");
  Config config = documents_config({folder / "a.jsonl"}, 4);
  config.data.tokenizer = "sentencepiece";
  config.data.sentencepiece.model = folder / "tokenizer.model";
  config.data.jsonl.text_key = "body";
  Numbers expected;
  for (const char* text : {"the event", "tensor"}) {
    const Numbers tokens = tokenizer->encode(text);
    expected.insert(expected.end(), tokens.begin(), tokens.end());
    expected.push_back(7);
  }
  config.data.document_token = {7, DocumentTokenPlace::end};
  config.data.sequence_length = std::ssize(expected) - 1;
  const MarkedSample sample = sample_at(*open_documents(config, 300), 0);
  EXPECT_EQ(sample.tokens, Numbers(expected.begin(), expected.end() - 1));
  EXPECT_EQ(sample.targets.back(), 7);
  EXPECT_EQ(std::ranges::count(sample.targets, -1), 1);
}

}  // namespace
}  // namespace plait::data
