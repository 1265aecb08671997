// Splitting text by a regular expression, as the pre-tokenizers of a tokenizer.json do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait::data {

// What becomes of a match: names as in tokenizer.json.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// The same pattern for PCRE2. The `tokenizers` library reads patterns with Oniguruma (Ruby's syntax), PCRE2 is nearly the same:
// what both read alike is left as it is, `\s` and `\S` are made to mean Unicode's White_Space (PCRE2 has U+180E too), and what
// they read differently or one does not know throws std::invalid_argument with the construct.
std::string pcre2_pattern(std::string_view oniguruma);
std::string pcre2_literal(std::string_view text);

// What a match works in; one for each thread.
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
  // `pattern`: of pcre2_pattern(). `invert`: what lies between matches counts as a match and the other way round.
  // std::invalid_argument where PCRE2 refuses it, or where it could match nothing at all.
  SplitPattern(const std::string& pattern, SplitBehavior behavior, bool invert);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  // Hands over the pieces of well-formed UTF-8 from left to right; none is empty. ConfigError where a match takes more work
  // than any text should (PCRE2's limits).
  void split(std::string_view text, SplitScratch& scratch, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Code;
  using Match = std::pair<std::size_t, std::size_t>;  // begin, end
  // The next match from `from` on; begin == text.size() where there is none.
  Match next(std::string_view text, std::size_t from, SplitScratch& scratch) const;
  void split_merging(std::string_view text, SplitScratch& scratch, const std::function<void(std::string_view)>& piece) const;

  std::unique_ptr<Code> code_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace plait::data
