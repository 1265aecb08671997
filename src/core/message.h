// The program's messages to its user, apart from results. They may quote untrusted text, which must not control the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plait {

// Characters that a terminal may interpret: the control characters of ASCII.
constexpr bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// The text on one line, safe for a terminal: control characters and bytes that are not UTF-8 become '?', and at most `most`
// bytes are kept.
std::string printable(std::string_view text, std::size_t most = 1024);

// Prints "plait: TEXT" to stderr, in one write: ranks that are processes often fail together. Control characters in it, other
// than line ends and tabs, become '?'.
void message_to_stderr(const std::string& text);

// The text, in single quotes if it is not plain, so that a POSIX shell reads any content back unchanged.
inline std::string shell_quoted(std::string_view text) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=,+-@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos) return std::string(text);
  std::string word = "'";
  for (const char c : text) c == '\'' ? word += "'\\''" : word += c;
  return word + "'";
}

}  // namespace plait
