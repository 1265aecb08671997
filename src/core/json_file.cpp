#include "core/json_file.h"

#include "core/file.h"
#include "core/utf8.h"

namespace plait {

std::string json_problem(std::string_view text, const nlohmann::json::exception& error) {
  if (const auto offset = first_invalid_utf8(text)) return "is not UTF-8 text (at byte " + std::to_string(*offset + 1) + ")";
  if (const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&error))
    return "is not JSON (at byte " + std::to_string(parse->byte) + ")";
  return "has a number beyond 1.8e308";
}

nlohmann::json read_json_file(const std::string& path, std::uint64_t most_bytes, const std::string& hint) {
  std::string text;
  try {
    text = read_text(path, most_bytes);
  } catch (const ConfigError& error) {
    throw ConfigError(path + ": cannot be read" + hint + " (" + error.what() + ")");
  }
  return parse_json(text, [&](const std::string& problem) { throw ConfigError(path + ": " + problem); });
}

}  // namespace plait
