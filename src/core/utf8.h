// UTF-8: validation, repair, and ends of characters.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace plait {

// True if a byte of UTF-8 is not the first of its character.
constexpr bool is_utf8_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u; }

// Offset of the first byte that does not belong to well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates).
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

// `text` itself if it is well-formed; else a copy in `storage` with U+FFFD for every maximal broken part of a character
// (Unicode 3.9, "Substitution of Maximal Subparts"), like Python's bytes.decode(errors="replace").
std::string_view repaired_utf8(std::string_view text, std::string& storage);

// The number of bytes at the end of `text` that begin an incomplete character: 0 to 3.
std::size_t unfinished_utf8(std::string_view text);

}  // namespace plait
