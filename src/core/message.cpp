#include "core/message.h"

#include <algorithm>
#include <cstdio>

#include "core/utf8.h"

namespace plait {

std::string printable(std::string_view text, std::size_t most) {
  std::string shown(text.substr(0, most));
  while (const auto bad = first_invalid_utf8(shown)) shown[*bad] = '?';
  std::ranges::replace_if(shown, is_control, '?');
  return shown + (text.size() > most ? "..." : "");
}

void message_to_stderr(const std::string& text) {
  std::string line = "plait: " + text + "\n";
  std::ranges::replace_if(line, [](char c) { return is_control(c) && c != '\n' && c != '\t'; }, '?');
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace plait
