// Files as sequences of tokens, and a split: ranges of them, one after another. Private to src/data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "core/choices.h"
#include "data/dataset.h"
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

class Split {
 public:
  // Adds tokens [first, first + count) of `source`, which outlives the split.
  void add(const TokenSource& source, std::int64_t first, std::int64_t count);
  std::int64_t tokens() const { return tokens_; }
  // Copies tokens [first, first + tokens.size()), and adds their marks: a part that does not continue where the previous one
  // ended begins a document.
  void read(std::int64_t first, std::span<std::int32_t> tokens, std::span<TokenMarks> marks) const;

 private:
  struct SplitPart {
    const TokenSource* source;
    std::int64_t first;  // within the source
    std::int64_t start;  // within the split
    bool goes_on;        // from the end of a file to the beginning of the next
  };
  std::vector<SplitPart> parts_;
  std::int64_t tokens_ = 0;
  bool at_end_ = false;  // the last part ends with its source
};

// Fills `out` from token `first` on; the split holds a token more. Targets are the tokens shifted by one, but -1 where that
// token is masked, and, if documents are separate, where it begins a document.
void read_sample(const Split& split, std::int64_t first, Documents documents, const SampleSpans& out);

}  // namespace plait::data
