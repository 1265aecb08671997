#include "topology/import_error.h"

#include "core/error.h"
#include "core/utf8.h"

namespace plait::topology {

std::string printable(std::string_view text, std::size_t most) {
  std::string shown(text.substr(0, most));
  while (const auto bad = first_invalid_utf8(shown)) shown[*bad] = '?';
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return shown + (text.size() > most ? "..." : "");
}

void refuse(const std::string& source, int line, std::string_view value, std::string_view rule) {
  throw ConfigError(std::vector<ConfigProblem>{{source, printable(value, 64), printable(rule), "", line}});
}

}  // namespace plait::topology
