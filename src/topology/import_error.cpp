#include "topology/import_error.h"

#include "core/error.h"
#include "core/message.h"

namespace plait::topology {

void refuse(const std::string& source, int line, std::string_view value, std::string_view rule) {
  throw ConfigError(std::vector<ConfigProblem>{{source, printable(value, 64), printable(rule), "", line}});
}

}  // namespace plait::topology
