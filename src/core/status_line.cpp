#include "core/status_line.h"

#include <unistd.h>

#include <cstdlib>

#include "core/terminal.h"

namespace plait {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first of these variables that is set decides, as in setlocale(3).
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    for (const char* suffix : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (value.find(suffix) != std::string_view::npos) return true;
    }
    return false;
  }
  return false;
}

}  // namespace

TerminalOptions detect_terminal(std::FILE* out) {
  TerminalOptions options;
  options.out = out;
  const std::string_view term = environment("TERM");
  options.updating = ::isatty(::fileno(out)) == 1 && !term.empty() && term != "dumb";
  options.unicode = options.updating && locale_is_utf8();
  options.color = options.updating && environment("NO_COLOR").empty();
  return options;
}

StatusLine::~StatusLine() { finish(); }

int StatusLine::width() const { return options_.width > 0 ? options_.width : terminal_width(options_.out); }

void StatusLine::erase() {
  if (!status_.empty()) std::fputs("\r\x1b[K", options_.out);
}

void StatusLine::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  erase();
  std::fwrite(text.data(), 1, text.size(), options_.out);
  if (!text.ends_with('\n')) std::fputc('\n', options_.out);
  std::fputs(status_.c_str(), options_.out);
  std::fflush(options_.out);
}

void StatusLine::print_prose(std::string_view text) { options_.updating ? print(folded(text, width(), 4)) : print(text); }

void StatusLine::update(std::string_view text) {
  if (!options_.updating) return;
  const std::lock_guard lock(mutex_);
  erase();
  status_ = text;
  std::fputs(status_.c_str(), options_.out);
  std::fflush(options_.out);
}

void StatusLine::finish() {
  const std::lock_guard lock(mutex_);
  if (status_.empty()) return;
  status_.clear();
  std::fputc('\n', options_.out);
  std::fflush(options_.out);
}

}  // namespace plait
