// Unicode's normal form C (UAX 15) in version 9, as `tokenizers` computes it: characters that can be composed are composed, and
// marks are in their canonical order.
#pragma once

#include <string>
#include <string_view>

namespace plait::data {

// The normal form of well-formed UTF-8: `text` itself if it is visibly in normal form, else a copy in `storage`. Time is linear
// in the text except for the sorting of marks. The result is the same with any version of utf8proc: normal forms of characters
// never change, and characters newer than Unicode 9 stay as they are.
std::string_view nfc(std::string_view text, std::string& storage);

}  // namespace plait::data
