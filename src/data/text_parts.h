// Texts whose parts come from a template or from people.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace plait::data {

struct TextPart {
  std::string_view text;
  bool of_template = false;
  bool learned = false;
};

// learned[i]: true if a byte of token i belongs to a learned part.
struct PartTokens {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learned;
};

using TokenSet = std::unordered_set<std::int32_t>;

// A token whose text is searched for before the rest is split, such as <|im_end|>.
struct AddedTokenName {
  std::int32_t id = 0;
  bool special = false;  // stands for no text
};

}  // namespace plait::data
