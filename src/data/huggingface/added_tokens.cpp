#include "data/huggingface/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/error.h"
#include "core/utf8.h"

namespace plait::data {
namespace {

using Character = utf8proc_int32_t;

Character first_character(std::string_view text, std::size_t& bytes) {
  Character character = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &character);
  require(length > 0, "AddedTokenFinder: the text is not UTF-8");
  bytes = static_cast<std::size_t>(length);
  return character;
}

Character last_character(std::string_view text, std::size_t& bytes) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && is_utf8_continuation(text[begin])) --begin;
  return first_character(text.substr(begin), bytes);
}

bool is_white_space(Character c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// \w of UTS 18: Alphabetic, marks, decimal digits, connector punctuation, joiners.
bool is_word(Character c) {
  const bool circled_letter = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
                              (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
  if (circled_letter || c == 0x200c || c == 0x200d) return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool ends_with_word(std::string_view text) {
  std::size_t bytes = 0;
  return !text.empty() && is_word(last_character(text, bytes));
}

bool begins_with_word(std::string_view text) {
  std::size_t bytes = 0;
  return !text.empty() && is_word(first_character(text, bytes));
}

std::size_t white_space_at_end(std::string_view text) {
  std::size_t all = 0, bytes = 0;
  while (all < text.size() && is_white_space(last_character(text.substr(0, text.size() - all), bytes))) all += bytes;
  return all;
}

std::size_t white_space_at_begin(std::string_view text) {
  std::size_t all = 0, bytes = 0;
  while (all < text.size() && is_white_space(first_character(text.substr(all), bytes))) all += bytes;
  return all;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::stable_sort(tokens_, {}, &AddedToken::content);
  const auto again = std::ranges::unique(tokens_, {}, &AddedToken::content);
  tokens_.erase(again.begin(), again.end());
  for (const AddedToken& token : tokens_) begins_[static_cast<unsigned char>(token.content.front())] = true;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t at, const AddedTokenFilter& counts) const {
  text.remove_prefix(at);
  const AddedToken* longest = nullptr;
  auto begin = tokens_.begin(), end = tokens_.end();  // those that agree with the text so far
  for (std::size_t depth = 0; begin != end; ++depth) {
    if (begin->content.size() == depth) {
      if (!counts || counts(begin->id, at, at + depth)) longest = &*begin;
      ++begin;
    }
    if (depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[depth]);
    const auto byte_of = [&](const AddedToken& token) { return static_cast<unsigned char>(token.content[depth]); };
    begin = std::ranges::lower_bound(begin, end, byte, {}, byte_of);
    end = std::ranges::upper_bound(begin, end, byte, {}, byte_of);
  }
  return longest;
}

std::vector<TextSection> AddedTokenFinder::sections(std::string_view text, const AddedTokenFilter& counts) const {
  std::vector<TextSection> sections;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = begins_[static_cast<unsigned char>(text[at])] ? longest_at(text, at, counts) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) continue;
    if (token->lstrip) begin = std::max(done, begin - white_space_at_end(text.substr(0, begin)));
    if (token->rstrip) end += white_space_at_begin(text.substr(end));
    if (begin > done) sections.push_back({text.substr(done, begin - done)});
    if (end > begin)
      sections.push_back({text.substr(begin, end - begin), token->id});  // else another token has already taken its space
    done = end;
  }
  if (done < text.size()) sections.push_back({text.substr(done)});
  return sections;
}

}  // namespace plait::data
