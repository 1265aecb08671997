// Texts of which parts come from a template and others from people.
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

// learned[i]: whether a byte of token i is of a part that is learned.
struct PartTokens {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learned;
};

using TokenSet = std::unordered_set<std::int32_t>;

// A token that is looked for by its text before the rest is split, such as <|im_end|>.
struct AddedTokenName {
  std::int32_t id = 0;
  bool special = false;  // it stands for no text
};

}  // namespace plait::data
