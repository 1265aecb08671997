#include "core/json_file.h"

#include "core/error.h"
#include "core/file.h"

namespace plait {

nlohmann::json read_json_file(const std::string& path, std::uint64_t most_bytes, const std::string& hint) {
  std::string text;
  try {
    text = read_text(path, most_bytes);
  } catch (const ConfigError& error) {
    throw ConfigError(path + ": cannot be read" + hint + " (" + error.what() + ")");
  }
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) throw ConfigError(path + ": is not JSON");
  return json;
}

}  // namespace plait
