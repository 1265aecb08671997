#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <new>
#include <numeric>
#include <set>

#include "core/config_error.h"
#include "core/error.h"
#include "core/error_of.h"
#include "data/batch_prefetcher.h"
#include "data/data_files.h"

namespace plait::data {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

struct Sample {
  Tokens tokens, targets;
  friend bool operator==(const Sample&, const Sample&) = default;
};

Sample train_sample(const Dataset& dataset, std::int64_t step, std::int64_t index) {
  const auto length = static_cast<std::size_t>(dataset.sequence_length());
  Sample sample{Tokens(length), Tokens(length)};
  dataset.train_sample(step, index, {sample.tokens, sample.targets});
  return sample;
}

Sample validation_sample(const Dataset& dataset, std::int64_t index, std::int64_t count) {
  const auto length = static_cast<std::size_t>(dataset.sequence_length());
  Sample sample{Tokens(length), Tokens(length)};
  dataset.validation_sample(index, count, {sample.tokens, sample.targets});
  return sample;
}

std::string text_of(const Sample& sample) {
  return make_byte_tokenizer()->decode(sample.tokens) + make_byte_tokenizer()->decode(std::span(sample.targets).last(1));
}

std::shared_ptr<const Dataset> open_bytes(const Config& config) { return open_dataset(config, *make_byte_tokenizer(), 256); }

TEST(DataSamples, AreWindowsOfTheTrainingSplitWithTargetsMovedByOne) {
  const DataFolder folder;
  const std::string a = some_text(500, 1), b = some_text(300, 2);
  folder.write("text/a.txt", a);
  folder.write("text/deep/er/b.txt", b);
  const auto dataset = open_bytes(data_config({folder / "text/**"}, 40, 0.1));
  EXPECT_EQ(dataset->train_tokens(), 450 + 270);
  EXPECT_EQ(dataset->validation_tokens(), 50 + 30);
  const std::string train = a.substr(0, 450) + b.substr(0, 270);
  std::set<std::size_t> starts;
  bool crosses = false;
  for (std::int64_t i = 0; i < 300; ++i) {
    const Sample sample = train_sample(*dataset, 3, i);
    EXPECT_TRUE(std::equal(sample.tokens.begin() + 1, sample.tokens.end(), sample.targets.begin()));
    const std::size_t start = train.find(text_of(sample));
    ASSERT_NE(start, std::string::npos) << "never a token of the validation split";
    crosses |= start < 450 && start + 41 > 450;
    starts.insert(start);
  }
  EXPECT_TRUE(crosses) << "files are concatenated";
  EXPECT_GT(starts.size(), 150u);
  EXPECT_LT(*starts.begin(), 20u);
  EXPECT_GT(*starts.rbegin(), 720u - 41u - 20u);
}

// Text of which any eleven bytes are different everywhere.
std::string numbers(std::size_t bytes, int first = 100'000) {
  std::string text;
  for (int i = first; text.size() < bytes; ++i) text += std::to_string(i) + ",";
  text.resize(bytes);
  return text;
}

// The windows of an epoch, counted by where they start, as the ranks of a layout load them; from step `first_step` on.
std::map<std::string, int> windows_loaded(const Dataset& dataset, std::int64_t samples, std::int64_t global_batch,
                                          std::int64_t first_step) {
  std::map<std::string, int> loaded;
  for (std::int64_t i = 0; i < samples; ++i)
    ++loaded[text_of(train_sample(dataset, first_step + i / global_batch, i % global_batch))];
  return loaded;
}

TEST(DataSamples, EveryWindowComesOnceInAnEpoch) {
  const DataFolder folder;
  const std::string text = numbers(10 * 33 + 1 + 4);
  folder.write("a.txt", text);
  Config config = data_config({folder / "a.txt"}, 10);
  config.train.global_batch = 6;
  const auto dataset = open_bytes(config);
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {  // of 33 windows, 5.5 steps
    std::set<std::size_t> starts;
    for (std::int64_t n = 33 * epoch; n < 33 * (epoch + 1); ++n)
      starts.insert(text.find(text_of(train_sample(*dataset, 1 + n / 6, n % 6))));
    EXPECT_EQ(starts.size(), 33u);
    EXPECT_EQ(*starts.rbegin() - *starts.begin(), 320u) << "side by side";
  }
}

TEST(DataSamples, GoOnWhereTheyWereLeftWithAnotherGlobalBatch) {
  const DataFolder folder;
  folder.write("a.txt", numbers(10 * 40 + 1));
  Config config = data_config({folder / "a.txt"}, 10);
  config.train.global_batch = 8;
  const auto before = open_bytes(config);
  auto loaded = windows_loaded(*before, 16, 8, 1);
  config.train.global_batch = 12;
  const auto after = open_dataset(config, *make_byte_tokenizer(), 256, {2, 16});
  EXPECT_EQ(after->sample_order(), before->sample_order());
  loaded.merge(windows_loaded(*after, 24, 12, 3));
  EXPECT_EQ(loaded.size(), 40u) << "an epoch";
  EXPECT_EQ(train_sample(*after, 3, 9), train_sample(*before, 4, 1));
  EXPECT_THROW(train_sample(*after, 2, 0), InternalError);
  EXPECT_THAT(config_error([&] { train_sample(*after, std::int64_t{1} << 60, 0); }), HasSubstr("train.global_batch=12"));
}

TEST(DataSamples, OfSeveralSourcesHaveTheirSharesAndEpochs) {
  const DataFolder folder;
  const std::string small = numbers(10 * 20 + 1), large = numbers(10 * 90 + 10, 500'000);
  folder.write("small.txt", small);
  folder.write("large.txt", large);
  Config config = data_config({}, 10);
  config.data.sources = {{{folder / "small.txt"}, 3}, {{folder / "large.txt"}, 1}};
  const auto dataset = open_bytes(config);
  EXPECT_EQ(dataset->train_tokens(), std::ssize(small) + std::ssize(large));
  const auto loaded = windows_loaded(*dataset, 80, 16, 1);
  int of_small = 0;
  for (const auto& [window, times] : loaded) {
    if (small.find(window) == std::string::npos) continue;
    EXPECT_EQ(times, 3) << "in three epochs";
    ++of_small;
  }
  EXPECT_EQ(of_small, 20);
  EXPECT_EQ(loaded.size(), 40u) << "and 20 of the other's";
  const auto used = dataset->sources_used(80);
  ASSERT_EQ(used.size(), 2u);
  EXPECT_EQ(used[0].globs, folder / "small.txt");
  EXPECT_EQ(used[0].samples, 60);
  EXPECT_DOUBLE_EQ(used[0].epochs(), 3);
  EXPECT_DOUBLE_EQ(used[1].epochs(), 20.0 / static_cast<double>(used[1].windows));
  config.data.sources[1].weight = 2;
  EXPECT_NE(open_bytes(config)->sample_order(), dataset->sample_order());
}

TEST(DataSamples, OfValidationAreOfEachSourceInItsShare) {
  const DataFolder folder;
  folder.write("a.txt", std::string(500, 'a'));
  folder.write("b.txt", std::string(5000, 'b'));
  Config config = data_config({}, 10, 0.1);
  config.data.sources = {{{folder / "a.txt"}, 3}, {{folder / "b.txt"}, 1}};
  const auto dataset = open_bytes(config);
  EXPECT_EQ(dataset->validation_tokens(), 550);
  std::map<std::string, int> seen;
  for (std::int64_t i = 0; i < 40; ++i) ++seen[text_of(validation_sample(*dataset, i, 40))];
  EXPECT_EQ(seen[std::string(11, 'a')], 30);
  EXPECT_EQ(seen[std::string(11, 'b')], 10);
  config.data.sequence_length = 60;
  EXPECT_THAT(config_error([&] { open_bytes(config); }),
              HasSubstr("must be at least data.sequence_length + 1 = 61 of " + folder / "a.txt"));
  config.data.validation_fraction = 0;
  EXPECT_EQ(open_bytes(config)->validation_tokens(), 0);
}

TEST(DataSamples, DependOnSeedStepAndIndexOnly) {
  const DataFolder folder;
  folder.write("a.txt", some_text(100000));
  Config config = data_config({folder / "a.txt"}, 32);
  const auto first = open_bytes(config), again = open_bytes(config);
  config.run.seed += 1;
  const auto other = open_bytes(config);
  EXPECT_EQ(train_sample(*first, 5, 9), train_sample(*again, 5, 9));
  EXPECT_NE(train_sample(*first, 5, 9), train_sample(*first, 6, 9));
  EXPECT_NE(train_sample(*first, 5, 9), train_sample(*first, 5, 10));
  EXPECT_NE(train_sample(*first, 5, 9), train_sample(*first, 9, 5));
  EXPECT_NE(train_sample(*first, 5, 9), train_sample(*other, 5, 9));
}

// The samples of a step in the order of their global index, as the ranks of a layout would load them.
std::vector<Sample> samples_of_step(const Dataset& dataset, std::int64_t data_size, std::int64_t micro_batch,
                                    std::int64_t global_batch) {
  std::vector<Sample> samples(static_cast<std::size_t>(global_batch));
  std::vector<int> loaded(samples.size());
  for (std::int64_t rank = 0; rank < data_size; ++rank) {
    const BatchShape shape{micro_batch, global_batch / micro_batch / data_size, data_size, rank};
    EXPECT_EQ(shape.global_batch(), global_batch);
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      for (std::int64_t i = 0; i < micro_batch; ++i) {
        const auto index = static_cast<std::size_t>(shape.first_sample(m) + i);
        samples.at(index) = train_sample(dataset, 7, shape.first_sample(m) + i);
        ++loaded.at(index);
      }
    }
  }
  EXPECT_THAT(loaded, testing::Each(1));
  return samples;
}

TEST(DataSamples, OfAStepAreTheSameUnderEveryLayout) {
  const DataFolder folder;
  folder.write("a.txt", some_text(5000));
  const auto dataset = open_bytes(data_config({folder / "a.txt"}, 16));
  const auto serial = samples_of_step(*dataset, 1, 16, 16);
  EXPECT_EQ(samples_of_step(*dataset, 2, 4, 16), serial);
  EXPECT_EQ(samples_of_step(*dataset, 4, 2, 16), serial);
  EXPECT_EQ(samples_of_step(*dataset, 4, 4, 16), serial);
}

TEST(DataSamples, OfValidationAreEvenlySpacedAndFixed) {
  const DataFolder folder;
  folder.write("a.txt", some_text(100));
  const std::string validation = some_text(211, 5);
  folder.write("v.txt", validation);
  Config config = data_config({folder / "a.txt"}, 10, 0.5);
  config.data.validation = {folder / "v.txt"};
  const auto dataset = open_bytes(config);
  EXPECT_EQ(dataset->train_tokens(), 100) << "explicit validation files leave the training files whole";
  EXPECT_EQ(dataset->validation_tokens(), 211);
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(text_of(validation_sample(*dataset, i, 5)), validation.substr(static_cast<std::size_t>(50 * i), 11));
  }
  EXPECT_EQ(text_of(validation_sample(*dataset, 0, 1)), validation.substr(0, 11));
}

TEST(DataSamples, ValidationBatchesCoverTheEvaluationOnce) {
  const DataFolder folder;
  folder.write("a.txt", some_text(4000));
  const auto dataset = open_bytes(data_config({folder / "a.txt"}, 8, 0.25));
  Tokens tokens(2 * 8), targets(2 * 8);
  const HostBatchMemory memory{View(tokens.data(), DType::i32, {2, 8}), View(targets.data(), DType::i32, {2, 8})};
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const BatchShape shape{2, 3, 2, rank};  // a global batch of 12
    for (std::int64_t m = 0; m < 2 * shape.micro_batches; ++m) {
      fill_validation_batch(*dataset, shape, 2, m, memory);
      const Sample second = validation_sample(*dataset, m * 4 + rank * 2 + 1, 24);
      EXPECT_EQ(Tokens(tokens.begin() + 8, tokens.end()), second.tokens);
      EXPECT_EQ(Tokens(targets.begin() + 8, targets.end()), second.targets);
    }
  }
}

TEST(DataSamples, RandomTokensNeedNoFiles) {
  Config config = data_config({}, 64);
  config.data.tokenizer = "random";
  config.model.vocab = 50257;
  const auto dataset = open_dataset(config, *create_tokenizer(config), 50257);
  EXPECT_EQ(dataset->validation_tokens(), 0);
  const Sample sample = train_sample(*dataset, 1, 0);
  EXPECT_EQ(sample, train_sample(*dataset, 1, 0));
  EXPECT_NE(sample, train_sample(*dataset, 1, 1));
  EXPECT_TRUE(std::equal(sample.tokens.begin() + 1, sample.tokens.end(), sample.targets.begin()));
  for (const std::int32_t token : sample.tokens) EXPECT_TRUE(token >= 0 && token < 50257);
  EXPECT_GT(std::set<std::int32_t>(sample.tokens.begin(), sample.tokens.end()).size(), 55u);
}

TEST(DataSamples, ShardsAreReadAcrossTheirBorders) {
  const DataFolder folder;
  std::vector<std::uint16_t> first(50), second(70);
  std::iota(first.begin(), first.end(), std::uint16_t{1000});
  std::iota(second.begin(), second.end(), std::uint16_t{1050});
  folder.write("s/x_000000.bin", shard_header(20240520, 1, 50) + bytes_of(first));
  folder.write("s/x_000001.bin", shard_header(20240520, 1, 70) + bytes_of(second));
  Config config = data_config({folder / "s/*.bin"}, 30);
  config.data.tokenizer = "tokens";
  config.model.vocab = 2000;
  const auto dataset = open_dataset(config, *create_tokenizer(config), 2000);
  EXPECT_EQ(dataset->train_tokens(), 120);
  for (std::int64_t i = 0; i < 100; ++i) {
    const Sample sample = train_sample(*dataset, 1, i);
    for (std::size_t k = 0; k < 30; ++k) {
      EXPECT_EQ(sample.tokens[k], sample.tokens[0] + static_cast<int>(k));
      EXPECT_EQ(sample.targets[k], sample.tokens[k] + 1);
    }
  }
}

TEST(DataSamples, OfValidationFilesThatAreTrainedOnAreToldOf) {
  const DataFolder folder;
  for (const char* name : {"corp/a.txt", "corp/val.txt", "corp/val2.txt", "held/out.txt"})
    folder.write(name, some_text(300, static_cast<std::uint32_t>(name[5])));
  folder.write("corp/empty.txt", "");
  folder.write("held/empty.txt", "");
  Config config = data_config({folder / "corp/**"}, 8);
  const auto warning = [&](const std::vector<std::string>& validation) {
    config.data.validation = validation;
    return trained_validation_warning(config.data);
  };
  EXPECT_EQ(warning({}), "");
  EXPECT_EQ(warning({folder / "held/*"}), "");
  EXPECT_THAT(
      warning({folder / "held/*", folder / "corp/val.txt"}),
      testing::AllOf(HasSubstr("warning: data.train matches 1 file of data.validation too, " + folder / "corp/val.txt:"),
                     HasSubstr("move such files elsewhere")));
  EXPECT_THAT(warning({folder / "corp/*"}),
              HasSubstr("matches 3 files of data.validation too, first " + folder / "corp/a.txt:"))
      << "an empty file adds nothing";
  std::filesystem::create_symlink(folder / "corp/a.txt", folder / "held/link.txt");
  std::filesystem::create_hard_link(folder / "corp/a.txt", folder / "held/same.txt");
  for (const char* name : {"held/link.txt", "held/same.txt", "held/../corp/a.txt"})
    EXPECT_THAT(warning({folder / name}), HasSubstr("1 file of data.validation too, " + folder / name));
  config.data.sources = {{{folder / "held/out.txt"}, 1.0}, {{folder / "corp/a.txt"}, 1.0}};
  config.data.train.clear();
  EXPECT_EQ(warning({folder / "corp/val.txt"}), "");
  EXPECT_THAT(warning({folder / "held/out.txt"}), HasSubstr("data.sources matches 1 file"));
  EXPECT_EQ(open_bytes(config)->validation_tokens(), 300) << "which is no error";
}

TEST(DataErrors, NameTheFileAndTheRemedy) {
  const DataFolder folder;
  const std::string small = folder.write("small.txt", some_text(300)), empty = folder.write("empty.txt", "");
  EXPECT_THAT(config_error([&] { open_bytes(data_config({folder / "none/*.txt"}, 8)); }),
              HasSubstr("none/*.txt: matches no file"));
  EXPECT_THAT(config_error([&] { open_bytes(data_config({folder / "none.txt"}, 8)); }), HasSubstr("none.txt: matches no file"));
  EXPECT_THAT(config_error([&] { open_bytes(data_config({folder / ""}, 8)); }), HasSubstr("is a directory: write"));
  EXPECT_THAT(config_error([&] { open_bytes(data_config({small, empty}, 8)); }),
              HasSubstr("empty.txt: is empty (at byte offset 0)"));
  EXPECT_THAT(config_error([&] { open_bytes(data_config({folder / "e*.txt"}, 8)); }), HasSubstr("empty.txt: is empty"));
  EXPECT_EQ(open_bytes(data_config({folder / "*.txt"}, 8))->train_tokens(), 300) << "an empty text among others adds nothing";
  EXPECT_THAT(config_error([&] { open_bytes(data_config({small}, 300)); }),
              HasSubstr("data.train: the training split has 300 tokens, must be at least data.sequence_length + 1 = 301"));
  EXPECT_THAT(config_error([&] { open_bytes(data_config({small}, 50, 0.1)); }),
              HasSubstr("the validation split has 30 tokens"));
  EXPECT_THAT(config_error([&] { open_dataset(data_config({small}, 8), *make_byte_tokenizer(), 100); }),
              HasSubstr("model.vocab=100: must be at least the tokenizer's vocabulary, 256"));
}

TEST(DataErrors, AnUnreadableFileIsNamed) {
  const DataFolder folder;
  const std::string path = folder.write("secret.txt", some_text(300));
  std::filesystem::permissions(path, std::filesystem::perms::none);
  if (::access(path.c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  EXPECT_THAT(config_error([&] { open_bytes(data_config({path}, 8)); }),
              HasSubstr("secret.txt: cannot be opened: Permission denied"));
}

// A mapping would die of SIGBUS here.
TEST(DataErrors, AFileThatShrinksUnderTheRunIsNamed) {
  const DataFolder folder;
  const std::string text = folder.write("text.txt", some_text(100'000));
  const std::string shard =
      folder.write("a.bin", shard_header(20240520, 1, 50'000) + bytes_of(std::vector<std::uint16_t>(50'000, 7)));
  Config tokens = data_config({shard}, 64);
  tokens.data.tokenizer = "tokens";
  tokens.model.vocab = 300;
  const auto bytes_data = open_bytes(data_config({text}, 64, 0.5));
  const auto tokens_data = open_dataset(tokens, *create_tokenizer(tokens), 300);
  std::vector<std::int32_t> in(64), out(64);
  bytes_data->train_sample(1, 0, {in, out});
  tokens_data->train_sample(1, 0, {in, out});
  for (const std::string& path : {text, shard}) std::filesystem::resize_file(path, 0);
  EXPECT_THAT(config_error([&] { bytes_data->train_sample(1, 0, {in, out}); }),
              testing::AllOf(HasSubstr(text), HasSubstr("bytes early")));
  EXPECT_THAT(config_error([&] { bytes_data->validation_sample(0, 1, {in, out}); }), HasSubstr(text));
  EXPECT_THAT(config_error([&] { tokens_data->train_sample(1, 0, {in, out}); }), HasSubstr(shard));
}

class TokenizerWithoutMemory final : public Tokenizer {
 public:
  std::string kind() const override { return "huggingface"; }
  std::int64_t vocab() const override { return 256; }
  std::vector<std::int32_t> encode_piece(std::string_view, bool) const override { throw std::bad_alloc(); }
  std::string decode(std::span<const std::int32_t>) const override { return ""; }
  std::string definition() const override { return ""; }
  void save(const std::filesystem::path&) const override {}

 private:
  void encode_section(std::string_view, bool, std::vector<std::int32_t>&, std::vector<std::size_t>&) const override {}
};

TEST(DataErrors, ATextThatDoesNotFitInMemoryIsNamed) {
  const DataFolder folder;
  for (const std::string& path : {folder.write("a.txt", "text"), folder.write("a.jsonl", "{\"text\": \"text\"}\n")}) {
    EXPECT_THAT(error_of<Error>([&] { return open_dataset(data_config({path}, 2), TokenizerWithoutMemory(), 256); }),
                testing::AllOf(testing::StartsWith(path + ": out of memory"), HasSubstr("plait data pack")));
  }
}

// More files than a process may have open.
TEST(DataErrors, ManyFilesNeedFewDescriptors) {
  const DataFolder folder;
  std::string all;
  for (int i = 0; i < 600; ++i) {
    const std::string text = some_text(200, static_cast<std::uint32_t>(i));
    folder.write("f" + std::to_string(1000 + i) + ".txt", text);
    all += text;
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 400, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto dataset = open_bytes(data_config({folder / "*.txt"}, 64, 0));
  std::vector<std::int32_t> in(64), out(64);
  for (int i = 0; i < 200; ++i) {
    dataset->train_sample(1, i, {in, out});
    EXPECT_NE(all.find(make_byte_tokenizer()->decode(in)), std::string::npos);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(DataErrors, ListEveryBadFile) {
  const DataFolder folder;
  folder.write("a.bin", "wrong magic");
  folder.write("b.bin", "");
  Config config = data_config({folder / "*.bin"}, 8);
  config.data.tokenizer = "tokens";
  config.model.vocab = 300;
  const std::string text = config_error([&] { open_dataset(config, *create_tokenizer(config), 300); });
  EXPECT_THAT(text, HasSubstr("2 problems"));
  EXPECT_THAT(text, HasSubstr("a.bin: is not a token shard"));
  EXPECT_THAT(text, HasSubstr("b.bin: is empty"));
}

TEST(DataErrors, ATokenOutsideTheVocabularyNamesFileAndOffset) {
  const DataFolder folder;
  std::vector<std::uint16_t> tokens(20, 7);
  tokens[13] = 300;
  const std::string path = folder.write("x.bin", shard_header(20240520, 1, 20) + bytes_of(tokens));
  Config config = data_config({path}, 19);
  config.data.tokenizer = "tokens";
  config.model.vocab = 300;
  const auto dataset = open_dataset(config, *create_tokenizer(config), 300);  // opening reads headers only
  EXPECT_THAT(config_error([&] { train_sample(*dataset, 1, 0); }),
              HasSubstr("x.bin: holds token 300, outside the vocabulary of 300 (at byte offset 1050)"));
}

}  // namespace
}  // namespace plait::data
