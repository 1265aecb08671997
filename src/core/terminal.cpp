#include "core/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "core/utf8.h"

namespace plait {
namespace {

constexpr int usual_width = 80;
constexpr int least_width = 20;  // smaller values are mistakes, and nothing would fit

std::optional<int> width_in_environment() {
  const char* const variable = std::getenv("COLUMNS");
  if (variable == nullptr) return std::nullopt;
  const std::string_view text = variable;
  int width = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  const bool is_width = error == std::errc{} && end == text.data() + text.size() && width >= least_width;
  return is_width ? std::optional(width) : std::nullopt;
}

void fold_line(std::string_view line, int width, int indent, std::string& out) {
  int column = 0;
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());  // its own indent is kept
  out.append(line.substr(0, begin));
  column += static_cast<int>(begin);
  bool is_first = true;
  for (std::size_t at = begin; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size()),
                      next = std::min(line.find_first_not_of(' ', end), line.size());
    const std::string_view word = line.substr(at, end - at);
    const int spaces = is_first ? 0 : static_cast<int>(at - line.find_last_not_of(' ', at - 1) - 1),
              length = display_width(word);
    if (!is_first && column + spaces + length > width) {
      out += '\n';
      out.append(static_cast<std::size_t>(indent), ' ');
      column = indent;
    } else {
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
    }
    out.append(word);
    column += length;
    at = next;
    is_first = false;
  }
}

}  // namespace

int terminal_width(std::FILE* out) {
  struct winsize size{};
  const bool is_terminal = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const std::optional<int> wanted = width_in_environment();
  if (!is_terminal) return wanted.value_or(usual_width);
  return std::min<int>(size.ws_col, wanted.value_or(size.ws_col));
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size() - 1);
    } else {
      width += is_utf8_continuation(text[i]) ? 0 : 1;
    }
  }
  return width;
}

std::string shortened(std::string_view text, int width, bool unicode) {
  if (display_width(text) <= width) return std::string(text);
  const std::string_view mark = unicode ? "…" : "...";
  int room = std::max(0, width - display_width(mark));
  std::size_t end = 0;  // of the characters that fit
  while (end < text.size() && (is_utf8_continuation(text[end]) || room-- > 0)) ++end;
  const std::size_t space = text.substr(0, end + 1).find_last_of(' ');
  if (space != std::string_view::npos) end = std::min(end, space);
  end = text.substr(0, end).find_last_not_of(' ') + 1;
  return std::string(text.substr(0, end)).append(mark.substr(0, static_cast<std::size_t>(std::max(0, width))));
}

std::string indented(const std::string& text) {
  std::string result = "    ";
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) result += "    ";
  }
  return result;
}

std::string folded(std::string_view text, int width, int indent) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find('\n', at);
    fold_line(text.substr(at, end - at), width, indent, out);
    if (end == std::string_view::npos) return out;
    out += '\n';
    at = end + 1;
  }
}

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
