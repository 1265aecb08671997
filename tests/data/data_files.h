// A folder of files for the data tests, removed at the end.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/config.h"

namespace plait::data {

class DataFolder {
 public:
  DataFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait_data_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~DataFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return *this / name;
  }

 private:
  std::filesystem::path path_;
};

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The header of llm.c's shards.
inline std::string shard_header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = tokens;
  return bytes_of(words);
}

// Readable words, different everywhere, `bytes` long.
inline std::string some_text(std::size_t bytes, std::uint32_t seed = 1) {
  static const char* words[] = {"pipeline", "tensor", "data",  "the", "of",    "gradient",
                                "a",        "stream", "waits", "for", "event", "batch"};
  std::string text;
  for (std::uint32_t n = 0; text.size() < bytes; ++n) {
    seed = seed * 1664525u + 1013904223u;
    text += words[(seed >> 16) % 12];
    text += n % 9 == 8 ? '\n' : ' ';
  }
  text.resize(bytes);
  return text;
}

inline Config data_config(std::vector<std::string> train, std::int64_t sequence_length, double validation_fraction = 0.0) {
  Config config;
  config.data.train = std::move(train);
  config.data.sequence_length = sequence_length;
  config.data.validation_fraction = validation_fraction;
  config.train.global_batch = 16;
  return config;
}

}  // namespace plait::data
