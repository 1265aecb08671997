#include "data/huggingface/byte_alphabet.h"

#include <array>

namespace plait::data {
namespace {

constexpr unsigned alphabet_end = 0x100 + 68;

constexpr std::array<int, alphabet_end> byte_of_character = [] {
  std::array<int, alphabet_end> bytes{};
  bytes.fill(-1);
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    bytes[printable ? byte : next++] = static_cast<int>(byte);
  }
  return bytes;
}();

}  // namespace

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); ++i) {
    unsigned character = static_cast<unsigned char>(token[i]);
    if (character >= 0x80) {
      // All of the alphabet is below U+0800: two bytes.
      if (character >= 0xe0 || i + 1 == token.size()) return std::nullopt;
      character = (character & 0x1fu) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3fu);
    }
    if (character >= alphabet_end || byte_of_character[character] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_of_character[character]);
  }
  return bytes;
}

}  // namespace plait::data
