// Turns text into token shards (`plait data pack`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace plait::data {

struct PackOptions {
  std::vector<std::string> globs;
  std::filesystem::path out;  // created if missing; must hold no shards yet
  std::int64_t shard_tokens = 100'000'000;
  int threads = 1;                  // that encode
  bool add_special_tokens = false;  // Tokenizer::with_special_tokens() of each file
};

struct PackResult {
  std::int64_t files = 0;
  std::int64_t tokens = 0;
  std::vector<std::filesystem::path> shards;  // out/shard_000000.bin, ...
};

// Encodes the files one after another and cuts the tokens into shards of `shard_tokens` (the last one may be shorter).
// The shards are the same with any number of threads. Writes the tokenizer beside them. Every shard appears under its name only
// when complete.
PackResult pack(const PackOptions& options, const Tokenizer& tokenizer);

}  // namespace plait::data
