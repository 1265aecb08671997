// Marks on a sequence of tokens: where documents begin, and which tokens are not learned.
#pragma once

#include <cstdint>
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

}  // namespace plait::data
