// Token shards: files of token ids.
//
// Four formats, told apart as follows.
//   llm.c / modded-nanogpt, 16 bit   header of 256 int32: magic 20240520, version 1, number of tokens; then uint16 tokens
//   llm.c, 32 bit (Llama 3)          the same with magic 20240801, version 7; then uint32 tokens
//   nanoGPT, raw                     no header, uint16 tokens
//   Megatron-LM                      no header; NAME.idx beside NAME.bin describes it (data/megatron_index.h)
// A file NAME.bin with an index NAME.idx beside it, by its magic, is of Megatron-LM. Any other that begins with one of the two
// magic numbers has that format. A file without is raw if, and only if, its name says so: `train.bin` or `val.bin` (nanoGPT's
// names) or `*.u16.bin`. Anything else is refused. (No raw file of GPT-2 tokens is mistaken: both magics would need first a
// token above 55,000, beyond GPT-2's vocabulary.) All numbers are little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "core/file.h"
#include "data/document_marks.h"
#include "data/files.h"
#include "data/megatron_index.h"

namespace plait::data {

enum class ShardFormat { uint16, uint32, raw_uint16, megatron };

// The headers that plait writes say that NAME.documents is beside the shard (data/document_index.h), in words that others leave
// 0.

// Read as it is used; opening reads the header only, and the index where there is one. Thread-safe.
class TokenShard {
 public:
  // ConfigError naming file and offset when the file is empty, truncated, longer than its header says or of no known format.
  // So it is when an index is not there that the header promises. `documents`: keep where documents begin, if an index says so.
  explicit TokenShard(const std::filesystem::path& path, bool documents = true);
  ShardFormat format() const { return format_; }
  std::int64_t tokens() const { return tokens_; }
  // Copies tokens [first, first + out.size()). ConfigError naming file and offset at the first token that is not below
  // `vocab`: tokens are checked as they are used, never all at once. ConfigError naming the file if it has become shorter.
  void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab) const;
  void let_go() { file_.let_go(); }
  // Where documents begin, and what is masked; nothing where no index says so.
  const std::optional<DocumentMarks>& marks() const { return marks_; }

 private:
  DataFile file_;
  ShardFormat format_ = ShardFormat::uint16;
  TokenType type_ = TokenType::u16;
  std::size_t first_offset_ = 0;  // of the first token
  std::int64_t tokens_ = 0;
  std::optional<DocumentMarks> marks_;
};

// Whether a file among texts is meant as a shard: named *.bin, and begins with the magic number of a shard with header or has
// an index beside it, NAME.idx or NAME.documents, whatever has become of either.
bool is_token_shard(const std::filesystem::path& path);

// Whether it is the index of a shard, which is read with the shard: NAME.idx or NAME.documents. ConfigError if that is not
// beside it.
bool is_shard_index(const std::filesystem::path& path);

// Whether it is the tokenizer that `plait data pack` puts beside its shards, which is no text of theirs.
bool is_packed_tokenizer(const std::filesystem::path& path);

// Writes one shard with header, 16 bit where the vocabulary allows it. The file is written beside its place and appears
// under its name in finish(), complete and on disk; without finish() nothing is left behind.
class TokenShardWriter {
 public:
  TokenShardWriter(std::filesystem::path path, std::int64_t vocab);
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;
  ~TokenShardWriter();
  void append(std::span<const std::int32_t> tokens);
  std::int64_t tokens() const { return tokens_; }
  void finish();
  void finish(const DocumentMarks& marks);  // with its NAME.documents, which is there first

 private:
  void finish(std::int32_t index, std::int32_t masked);

  std::filesystem::path path_, temporary_;
  File file_;
  bool wide_;
  bool finished_ = false;
  std::int64_t tokens_ = 0;
};

}  // namespace plait::data
