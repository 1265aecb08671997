#include "comm/word.h"

#include <algorithm>

#include "core/message.h"

namespace plait::comm {

const JsonSource& word_source() {
  static const JsonSource source{
      .name = "",
      .known_keys_only = true,
      .null_is_missing = false,
      .control_characters = false,
      .longest_text = longest_word_text,
      .refuse = [](const std::string& path, const std::string& value, const std::string& rule) {
        throw InvalidWord((path.empty() ? "it" : "'" + path + "'") + (value.empty() ? " " : " is " + value + ": ") + rule);
      }};
  return source;
}

void read_hex(const JsonField& field, std::span<std::byte> to) {
  const std::string digits = field.text(2 * to.size());
  try {
    bytes_from_hex(digits, to);
  } catch (const InvalidWord& error) {
    field.refuse(error.what());
  }
}

std::string as_field(std::string_view text, std::size_t most_bytes) {
  std::string result(text.substr(0, most_bytes));
  std::replace_if(result.begin(), result.end(), is_control, ' ');
  return result;
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    text += {digits[value >> 4], digits[value & 15]};
  }
  return text;
}

void bytes_from_hex(std::string_view text, std::span<std::byte> to) {
  if (text.size() != 2 * to.size()) {
    throw InvalidWord("has " + std::to_string(text.size()) + " digits instead of " + std::to_string(2 * to.size()));
  }
  const auto digit = [](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
    throw InvalidWord("is not hexadecimal");
  };
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<std::byte>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  }
}

}  // namespace plait::comm
