// Documents in a sequence of tokens: where they begin, and which tokens are not learned, in memory and in an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace plait::data {

// Bits that mark a token, in any combination.
using TokenMarks = std::uint8_t;
inline constexpr TokenMarks begins_document = 1, ends_document = 2, masked = 4;  // masked: no loss is taken on predicting it

// Sorted offsets: 8 bytes a document, 16 a run of masked tokens.
class DocumentMarks {
 public:
  // Both are called in ascending order. A document without tokens does not count.
  void begin_document(std::int64_t token);
  void mask(std::int64_t first, std::int64_t end);  // tokens [first, end)
  // Appends the marks of the tokens that follow, the first of which is `first`.
  void append(const DocumentMarks& following, std::int64_t first);

  const std::vector<std::int64_t>& documents() const { return documents_; }  // the first token of each
  const std::vector<std::int64_t>& masked_runs() const { return masked_; }   // first, end, first, end, ...

  // The marks of tokens [first, first + count), counted from there.
  DocumentMarks part(std::int64_t first, std::int64_t count) const;
  // Adds the marks of tokens [first, first + marks.size()). O(log of all + those in the range).
  void add_to(std::span<TokenMarks> marks, std::int64_t first) const;

 private:
  std::vector<std::int64_t> documents_, masked_;
};

// The tokens of consecutive documents.
struct EncodedDocuments {
  std::vector<std::int32_t> tokens;
  DocumentMarks marks;
};

// The index NAME.documents of a shard NAME.bin that plait packed: where its documents begin, and which tokens are not learned.
//
// Little-endian:
//   8 bytes    "PLAITDOC"
//   uint64     version, 1
//   uint64     tokens of NAME.bin
//   uint64     D, documents that begin in it
//   uint64     R, runs of masked tokens
//   int64[D]   the first token of each document, ascending
//   int64[2R]  first token and end of each run, ascending, with a token or more between them
// The reader trusts nothing in it.

// Its path for NAME.bin.
std::filesystem::path document_index_path(const std::filesystem::path& shard);

// True if a file has an index's name, and either begins like an index or has a shard next to it, whose reader then reports the
// fault.
bool is_document_index(const std::filesystem::path& path);

// ConfigError naming file, offset and fault. `tokens`: the shard's.
DocumentMarks read_document_index(const std::filesystem::path& path, std::int64_t tokens);

// Writes the file in one piece; an existing one is replaced.
void write_document_index(const std::filesystem::path& path, std::int64_t tokens, const DocumentMarks& marks);

}  // namespace plait::data
