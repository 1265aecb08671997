// Turns text and JSONL into token shards (`plait data pack`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/task_progress.h"
#include "data/tokenizer.h"

namespace plait::data {

struct PackOptions {
  std::vector<std::string> globs;
  std::filesystem::path out;  // created if missing; must hold no shards yet
  std::int64_t shard_tokens = 100'000'000;
  int threads = 1;                  // for encoding
  bool add_special_tokens = false;  // Tokenizer::with_special_tokens() of each document
  DataConfig data = {};             // jsonl, chat_template, document_token
  ProgressCallback progress = {};   // from the calling thread
};

struct PackResult {
  std::int64_t files = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::vector<std::filesystem::path> shards;  // out/shard_000000.bin, ...
};

// Encodes the files one after another and cuts the tokens into shards of `shard_tokens` (the last one may be shorter), each
// with its index of documents and masked tokens next to it (data/documents.h). The shards are the same with any number of
// threads. Writes the tokenizer to the same directory. Every shard appears under its name only when complete; if a file turns
// out to be wrong, nothing that was written stays. Memory does not grow with the files, except for 8 bytes per document of a
// shard and 16 per run of masked tokens.
PackResult pack(const PackOptions& options, const Tokenizer& tokenizer);

}  // namespace plait::data
