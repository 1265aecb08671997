// A status line: the last line of a terminal, rewritten in place, with lasting lines above it. If the output is not a terminal
// there is no such line, and lasting lines are plain lines.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace plait {

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
