// Quotes text as one word of a shell.
#pragma once

#include <string>
#include <string_view>

namespace plait {

// In single quotes if it is not plain: a POSIX shell reads any content back unchanged.
inline std::string shell_quoted(std::string_view text) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=,+-@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos) return std::string(text);
  std::string word = "'";
  for (const char c : text) c == '\'' ? word += "'\\''" : word += c;
  return word + "'";
}

}  // namespace plait
