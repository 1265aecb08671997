// The error by which importers refuse a file.
#pragma once

#include <string>
#include <string_view>

namespace plait::topology {

// Throws the ConfigError that says: this value in this line of this source is not what `rule` says. `line` is 0 if no line is
// to blame; `value` may be empty.
[[noreturn]] void refuse(const std::string& source, int line, std::string_view value, std::string_view rule);

}  // namespace plait::topology
