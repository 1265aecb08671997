// Splits text by a regular expression, like the pre-tokenizers of a tokenizer.json.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait::data {

// The treatment of a match: names as in tokenizer.json.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Translates the pattern for PCRE2. The `tokenizers` library reads patterns with Oniguruma (Ruby's syntax), and PCRE2's are
// nearly the same. Parts that both read in the same way are kept, `\s` and `\S` are made to mean Unicode's White_Space (PCRE2
// adds U+180E), and a construct that the two read differently, or that one lacks, throws std::invalid_argument naming it.
std::string pcre2_pattern(std::string_view oniguruma);
std::string pcre2_literal(std::string_view text);

// Working memory of a match; one for each thread.
class SplitScratch {
 public:
  SplitScratch();
  ~SplitScratch();
  SplitScratch(const SplitScratch&) = delete;
  SplitScratch& operator=(const SplitScratch&) = delete;

 private:
  friend class SplitPattern;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Immutable and thread-safe.
class SplitPattern {
 public:
  // `pattern`: of pcre2_pattern(). `invert`: the text between matches counts as a match, and vice versa. std::invalid_argument
  // if PCRE2 refuses it, or if it can match the empty string.
  SplitPattern(const std::string& pattern, SplitBehavior behavior, bool invert);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  // Passes the pieces of well-formed UTF-8 from left to right; none is empty. ConfigError if a match takes more work than any
  // text should (PCRE2's limits).
  void split(std::string_view text, SplitScratch& scratch, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Code;
  using Match = std::pair<std::size_t, std::size_t>;  // begin, end
  // The next match from `from` on; begin == text.size() if there is none.
  Match next(std::string_view text, std::size_t from, SplitScratch& scratch) const;
  void split_merging(std::string_view text, SplitScratch& scratch, const std::function<void(std::string_view)>& piece) const;

  std::unique_ptr<Code> code_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace plait::data
