// Fits text to the width of a terminal.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace plait {

// The width of a line on `out` in columns: the environment's COLUMNS, but never more than the terminal has; 80 if neither is
// known.
int terminal_width(std::FILE* out);

// The columns of `text`, which is one line: counts UTF-8 characters, without escape sequences for colours.
int display_width(std::string_view text);

// `text` broken at spaces into lines of up to `width` columns, with longer words kept whole; all lines but the first begin with
// `indent` spaces, which count. Its own newlines are kept.
std::string folded(std::string_view text, int width, int indent = 0);

// `text`, one line without colours, if it takes up to `width` columns; else the part that fits, ending in a whole word if there
// is one, and a mark: "…", or "..." on a terminal without Unicode.
std::string shortened(std::string_view text, int width, bool unicode);

}  // namespace plait
