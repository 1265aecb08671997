// A split: ranges of files, one after another. Private to src/data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/choices.h"
#include "data/dataset.h"
#include "data/token_source.h"

namespace plait::data {

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
