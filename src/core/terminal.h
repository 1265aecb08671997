// Text on a terminal: its width, and a status line below lasting lines.
#pragma once

#include <cstdio>
#include <mutex>
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

std::string indented(const std::string& text);  // every line by four spaces

// `text`, one line without colours, if it takes up to `width` columns; else the part that fits, ending in a whole word if there
// is one, and a mark: "…", or "..." on a terminal without Unicode.
std::string shortened(std::string_view text, int width, bool unicode);

// A status line: the last line of a terminal, rewritten in place, with lasting lines above it. If the output is not a terminal
// there is no such line, and lasting lines are plain lines.

struct TerminalOptions {
  std::FILE* out = stderr;
  bool updating = false;  // a terminal that can move its cursor
  bool unicode = false;   // its locale is UTF-8
  bool color = false;
  int width = 0;  // columns; 0: ask the terminal each time
};

// The options for stderr: isatty, TERM, NO_COLOR, and the locale's character set.
TerminalOptions detect_terminal(std::FILE* out = stderr);

// Thread-safe.
class StatusLine {
 public:
  explicit StatusLine(const TerminalOptions& options) : options_(options) {}
  ~StatusLine();  // leaves the last status as a line of its own

  const TerminalOptions& options() const { return options_; }
  int width() const;                        // columns of the terminal
  void print(std::string_view text);        // a lasting line (a final newline is added if missing), above the status
  void print_prose(std::string_view text);  // a lasting line, folded at the width of a terminal; whole elsewhere
  void update(std::string_view text);       // replaces the status; does nothing if the output is not a terminal
  void finish();                            // the status becomes a lasting line

 private:
  void erase();
  TerminalOptions options_;
  std::mutex mutex_;
  std::string status_;
};

}  // namespace plait
