// GPT-2's alphabet of bytes: a byte-level vocabulary writes each byte as a visible character, so that the vocabulary is text.
// Printable characters of Latin-1 stand for themselves, the other 68 bytes for U+0100 and the following code points (Radford et
// al. 2019, bytes_to_unicode).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plait::data {

// The bytes that a token of the vocabulary stands for; nullopt if it has a character outside the alphabet.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace plait::data
