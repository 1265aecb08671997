#include "core/json_file.h"

#include <fstream>

#include "core/error.h"

namespace plait {

nlohmann::json read_json_file(const std::string& path, std::streamoff most_bytes, const std::string& hint) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw ConfigError(path + ": cannot be read" + hint);
  if (file.tellg() > most_bytes) throw ConfigError(path + ": far too long");
  file.seekg(0);
  nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded()) throw ConfigError(path + ": is not JSON");
  return json;
}

}  // namespace plait
