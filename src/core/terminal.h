// The width that text for people has to fit in.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace plait {

// Columns of a line on `out`: what the environment's COLUMNS says, but never more than a terminal has; 80 where neither is
// known.
int terminal_width(std::FILE* out);

// Columns that `text`, of one line, takes: UTF-8 characters, without escape sequences for colours.
int display_width(std::string_view text);

// `text` broken at spaces into lines of up to `width` columns, words longer than that whole; lines but the first begin with
// `indent` spaces, which count. Newlines that it has stay.
std::string folded(std::string_view text, int width, int indent = 0);

// `text`, of one line without colours, if it takes up to `width` columns; else what fits of it, a whole word at the end if
// there is one, and a mark: "…", or "..." where the terminal has no Unicode.
std::string shortened(std::string_view text, int width, bool unicode);

}  // namespace plait
