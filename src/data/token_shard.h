// Token shards: files of token ids.
//
// There are four formats, told apart as follows.
//   llm.c / modded-nanogpt, 16 bit   header of 256 int32: magic 20240520, version 1, number of tokens; then uint16 tokens
//   llm.c, 32 bit (Llama 3)          the same with magic 20240801, version 7; then uint32 tokens
//   nanoGPT, raw                     no header, uint16 tokens
//   Megatron-LM                      no header; NAME.idx next to NAME.bin describes it (data/megatron_index.h)
// A file NAME.bin next to an index NAME.idx (by its magic) is Megatron-LM's. Any other that begins with one of the two magic
// numbers has that format. A file without is raw if, and only if, its name says so: `train.bin` or `val.bin` (nanoGPT's names)
// or `*.u16.bin`. Anything else is refused. (No raw file of GPT-2 tokens is mistaken: both magics would need first a token
// above 55,000, beyond GPT-2's vocabulary.) All numbers are little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "core/file.h"
#include "data/documents.h"
#include "data/files.h"
#include "data/megatron_index.h"

namespace plait::data {

enum class ShardFormat { uint16, uint32, raw_uint16, megatron };

// plait's own headers say that NAME.documents is next to the shard (data/documents.h), in words that other writers leave
// 0.

// Tokens are read when they are used; opening reads only the header and the index, if there is one. Thread-safe.
class TokenShard {
 public:
  // ConfigError naming file and offset when the file is empty, truncated, longer than its header says or of no known format, or
  // when an index is missing that the header promises. `documents`: keep where documents begin, if an index says so.
  explicit TokenShard(const std::filesystem::path& path, bool documents = true);
  ShardFormat format() const { return format_; }
  std::int64_t tokens() const { return tokens_; }
  // Copies tokens [first, first + out.size()). ConfigError naming file and offset at the first token that is not below
  // `vocab`: tokens are checked as they are used, never all at once. ConfigError naming the file if it has become shorter.
  void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab) const;
  void let_go() { file_.let_go(); }
  // Document starts and masked tokens; nullopt if no index gives them.
  const std::optional<DocumentMarks>& marks() const { return marks_; }

 private:
  DataFile file_;
  ShardFormat format_ = ShardFormat::uint16;
  TokenType type_ = TokenType::u16;
  std::size_t first_offset_ = 0;  // of the first token
  std::int64_t tokens_ = 0;
  std::optional<DocumentMarks> marks_;
};

// True if a file among texts is meant as a shard: it is named *.bin, and begins with the magic number of a shard with header or
// has an index next to it, NAME.idx or NAME.documents, in any condition.
bool is_token_shard(const std::filesystem::path& path);

// True for the index of a shard, NAME.idx or NAME.documents, which is read with the shard. ConfigError if the shard is not next
// to it.
bool is_shard_index(const std::filesystem::path& path);

// True for the tokenizer that `plait data pack` puts next to its shards; it is no text.
bool is_packed_tokenizer(const std::filesystem::path& path);

// Writes one shard with header, 16 bit if the vocabulary allows it. The file is written under another name and appears under
// its own in finish(), complete and on disk; without finish() nothing is left behind.
class TokenShardWriter {
 public:
  TokenShardWriter(std::filesystem::path path, std::int64_t vocab);
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;
  ~TokenShardWriter();
  void append(std::span<const std::int32_t> tokens);
  std::int64_t tokens() const { return tokens_; }
  void finish();
  void finish(const DocumentMarks& marks);  // writes NAME.documents first

 private:
  void finish(std::int32_t index, std::int32_t masked);

  std::filesystem::path path_, temporary_;
  File file_;
  bool wide_;
  bool finished_ = false;
  std::int64_t tokens_ = 0;
};

}  // namespace plait::data
