#include "core/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace plait {
namespace {

struct Character {
  std::size_t bytes = 0;  // of its bytes that are there and right; at least 1
  bool whole = false;
  bool ends_early = false;  // the text ends within the character
};

// The character that begins at text[at], or as much of it as is valid.
Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xc2 && lead <= 0xdf ? 2
                             : lead >= 0xe0 && lead <= 0xef ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0) return {1, false, false};
  // The second byte rules out overlong forms, surrogates, and code points beyond Unicode.
  const unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t k = 1; k < length; ++k) {
    if (at + k == text.size()) return {k, false, true};
    const unsigned next = byte(at + k);
    if (next < (k == 1 ? least : 0x80) || next > (k == 1 ? most : 0xbf)) return {k, false, false};
  }
  return {length, true, false};
}

}  // namespace

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    std::uint64_t eight = 0;
    if (text.size() - i >= sizeof(eight)) {
      std::memcpy(&eight, text.data() + i, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof(eight);
        continue;
      }
    }
    const Character character = character_at(text, i);
    if (!character.whole) return i;
    i += character.bytes;
  }
  return std::nullopt;
}

std::string_view repaired_utf8(std::string_view text, std::string& storage) {
  auto broken = first_invalid_utf8(text);
  if (!broken) return text;
  storage.clear();
  while (broken) {
    storage.append(text.substr(0, *broken));
    storage += "\xef\xbf\xbd";
    text.remove_prefix(*broken + character_at(text, *broken).bytes);
    broken = first_invalid_utf8(text);
  }
  storage.append(text);
  return storage;
}

std::size_t unfinished_utf8(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(3, text.size()); ++bytes) {
    const Character last = character_at(text, text.size() - bytes);
    if (last.ends_early && last.bytes == bytes) return bytes;
  }
  return 0;
}

}  // namespace plait
