#include "data/text_parts.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "data/tokenizer.h"

namespace plait::data {
namespace {

// The parts as one text.
class PartedText {
 public:
  void add(const std::string& text, const TextPart& part) {
    text_ += text;
    ends_.push_back(text_.size());
    parts_.push_back(part);
  }
  const std::string& text() const { return text_; }

  // For the parts with bytes in [begin, end); if that is empty, for the byte at `begin`.
  bool of_template(std::size_t begin, std::size_t end) const {
    return std::ranges::all_of(within(begin, end), &TextPart::of_template);
  }
  bool learned(std::size_t begin, std::size_t end) const { return std::ranges::any_of(within(begin, end), &TextPart::learned); }

 private:
  std::span<const TextPart> within(std::size_t begin, std::size_t end) const {
    const auto first = std::ranges::upper_bound(ends_, begin) - ends_.begin();
    const auto last = std::ranges::lower_bound(ends_, std::max(end, begin + 1)) - ends_.begin();
    if (last == std::ssize(ends_)) return {};
    return std::span(parts_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first) + 1);
  }

  std::string text_;
  std::vector<std::size_t> ends_;
  std::vector<TextPart> parts_;
};

}  // namespace

std::vector<TextSection> Tokenizer::sections(std::string_view text, const AddedTokenFilter&) const {
  return text.empty() ? std::vector<TextSection>() : std::vector<TextSection>{{text}};
}

PartTokens Tokenizer::encode_parts(std::span<const TextPart> parts, const TokenSet& reserved) const {
  PartedText whole;
  for (const TextPart& part : parts) whole.add(normalized(part.text), part);
  PartTokens result;
  const auto add = [&](std::int32_t token, std::size_t begin, std::size_t end) {
    if (reserved.contains(token) && !whole.of_template(begin, end)) {
      throw ConfigError(fmt::format("holds '{}', which the tokenizer cannot tell from the chat template's own token",
                                    whole.text().substr(begin, end - begin)));
    }
    result.tokens.push_back(token);
    result.learned.push_back(whole.learned(begin, end));
  };
  const auto counts = [&](std::int32_t token, std::size_t begin, std::size_t end) {
    return !reserved.contains(token) || whole.of_template(begin, end);
  };
  bool begins = true;
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;
  for (const TextSection& section : sections(whole.text(), counts)) {
    std::size_t begin = static_cast<std::size_t>(section.text.data() - whole.text().data());
    if (section.token != TextSection::no_token) {
      result.tokens.push_back(section.token);
      result.learned.push_back(whole.learned(begin, begin + section.text.size()));
    } else {
      tokens.clear();
      ends.clear();
      encode_section(section.text, begins, tokens, ends);
      const std::size_t first = begin;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        add(tokens[i], begin, first + ends[i]);
        begin = first + ends[i];
      }
    }
    begins = section.token != TextSection::no_token;
  }
  return result;
}

}  // namespace plait::data
