#include "train/batch_file.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "core/file.h"
#include "data/data_files.h"
#include "data/tokenizer.h"

namespace plait::train {
namespace {

using testing::HasSubstr;

Config batch_config(const data::DataFolder& folder, const std::string& data) {
  return parse_config("model: {preset: tiny}\ntrain: {steps: 10, global_batch: 4, micro_batch: 4}\ndata: {train: [" +
                      (folder / "a.txt") + "], sequence_length: 16, validation_fraction: 0, " + data + "}\n");
}

struct Sample {
  std::vector<std::int32_t> tokens, targets, starts;
  friend bool operator==(const Sample&, const Sample&) = default;
};

Sample sample_of(const data::Dataset& dataset, std::int64_t step, std::int64_t sample) {
  Sample read{std::vector<std::int32_t>(16), std::vector<std::int32_t>(16), std::vector<std::int32_t>(16)};
  dataset.train_sample(step, sample, {read.tokens, read.targets, read.starts});
  return read;
}

TEST(BatchFile, GivesBackTheSamplesOfEveryStep) {
  const data::DataFolder folder;
  folder.write("a.txt", data::some_text(1000));
  const Config config = batch_config(folder, "documents: separate");
  const auto tokenizer = data::make_byte_tokenizer();
  const auto dataset = data::open_dataset(config, *tokenizer, 256);
  write_batches(folder / "b.safetensors", *dataset, config, 3);
  const auto read = open_batches(folder / "b.safetensors", config);
  EXPECT_EQ(read->train_tokens(), 3 * 4 * 16);
  for (std::int64_t step = 1; step <= 3; ++step) {
    for (std::int64_t sample = 0; sample < 4; ++sample)
      EXPECT_EQ(sample_of(*read, step, sample), sample_of(*dataset, step, sample));
  }
  EXPECT_THROW(sample_of(*read, 4, 0), InternalError);
}

TEST(BatchFile, IsOfOneConfiguration) {
  const data::DataFolder folder;
  folder.write("a.txt", data::some_text(1000));
  Config config = batch_config(folder, "documents: joined");
  const auto tokenizer = data::make_byte_tokenizer();
  write_batches(folder / "b.safetensors", *data::open_dataset(config, *tokenizer, 256), config, 2);
  config.train.global_batch = 8;
  EXPECT_THAT([&] { open_batches(folder / "b.safetensors", config); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("b.safetensors: its 'tokens' was not made for this")));
  config.train.global_batch = 4;
  config.data.documents = Documents::separate;
  EXPECT_THAT([&] { open_batches(folder / "b.safetensors", config); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("its 'starts'")));
}

TEST(BatchFile, IsWholeOrNotThere) {
  const data::DataFolder folder;
  const std::string shard = folder.write("a.u16.bin", data::bytes_of(std::vector<std::uint16_t>(1000, 300)));
  const Config config =
      parse_config("model: {preset: tiny, vocab: 256}\ntrain: {steps: 10, global_batch: 4, micro_batch: 4}\ndata: {train: [" +
                   shard + "], tokenizer: tokens, sequence_length: 16, validation_fraction: 0}\n");
  const auto dataset = data::open_dataset(config, *data::create_tokenizer(config), 256);
  const std::filesystem::path out = folder / "b.safetensors";
  EXPECT_THAT([&] { write_batches(out, *dataset, config, 3); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("holds token 300, outside the vocabulary")));
  EXPECT_THAT(list_directory(folder.path()), testing::ElementsAre(shard));
  folder.write("b.safetensors", "mine");
  EXPECT_THAT([&] { write_batches(out, *dataset, config, 3); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("b.safetensors: exists already")));
  EXPECT_EQ(read_text(out, 100), "mine");
}

}  // namespace
}  // namespace plait::train
