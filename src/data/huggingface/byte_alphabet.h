// GPT-2's alphabet of bytes: in a byte-level vocabulary each byte is written as a character that can be seen, so that the
// vocabulary is text. Printable characters of Latin-1 stand for themselves, the other 68 bytes for U+0100 and what follows
// (Radford et al. 2019, bytes_to_unicode).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plait::data {

// The bytes that a token of the vocabulary stands for; nothing where it has a character that is not of the alphabet.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace plait::data
