// How importers refuse a file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plait::topology {

// On one line and fit for a terminal, whatever a file holds: control characters and bytes that are no UTF-8 become '?', and at
// most `most` bytes are kept.
std::string printable(std::string_view text, std::size_t most = 1024);

// Throws the ConfigError that says: this value in this line of this source is not what `rule` says. `line` is 0 where no line
// is to blame, `value` may be empty.
[[noreturn]] void refuse(const std::string& source, int line, std::string_view value, std::string_view rule);

}  // namespace plait::topology
