// One file as a sequence of tokens. Private to src/data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "data/documents.h"
#include "data/files.h"
#include "data/tokenizer.h"

namespace plait::data {

// Immutable and thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t tokens() const = 0;
  // Copies tokens [first, first + out.size()).
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;
  // Adds the marks of these tokens, which read() returned. Document starts are marked only where documents are separate.
  virtual void mark(std::int64_t first, std::span<const std::int32_t> tokens, std::span<TokenMarks> marks) const = 0;
};

struct SourceOptions {
  const Tokenizer& tokenizer;
  std::int64_t vocab = 0;  // tokens of shards are below it
  const DataConfig& data;
};

// The files of some globs, in order. Text is encoded; bytes and shards are read as they are used. An empty file is an error,
// except for a text that only a wildcard matched: it adds nothing. A shard without known document starts is an error if
// documents are separate. ConfigError with the problems of all files.
std::vector<std::unique_ptr<TokenSource>> open_sources(const std::vector<std::string>& globs, const std::string& key,
                                                       const SourceOptions& options);

// ConfigError naming file and offset unless the tokenizer can encode the text in `file`.
void check_encodable(const Tokenizer& tokenizer, const DataFile& file);

}  // namespace plait::data
