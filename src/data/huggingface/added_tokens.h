// Added tokens, such as <|endoftext|>, are found in the text before it is split and merged.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace plait::data {

struct AddedToken {
  std::string content;  // not empty
  std::int32_t id = 0;
  bool single_word = false;  // only with no letter, digit, mark or joining punctuation next to it
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;   // is searched for in the normalized text, and is normalized itself
  bool special = false;
};

// A part of a text: a token that was found, or text between them.
struct TextSection {
  static constexpr std::int32_t no_token = -1;
  std::string_view text;
  std::int32_t token = no_token;
};

// Decides if a token at [begin, end) of a text counts; the range excludes the white space that it takes.
using AddedTokenFilter = std::function<bool(std::int32_t token, std::size_t begin, std::size_t end)>;

// Immutable and thread-safe.
class AddedTokenFinder {
 public:
  // If two have the same content, the first counts.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // The sections of well-formed UTF-8 from left to right; sections of text are not empty. The leftmost token counts, and the
  // longest of those that begin there. A token that must be a single word but is not counts as text; so does one that `counts`
  // refuses.
  std::vector<TextSection> sections(std::string_view text, const AddedTokenFilter& counts = {}) const;

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t at, const AddedTokenFilter& counts) const;  // null: none

  std::vector<AddedToken> tokens_;  // sorted by content
  std::array<bool, 256> begins_{};  // true if a token begins with this byte
};

}  // namespace plait::data
