// JSON files that someone else may have written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plait {

// ConfigError naming the file if it cannot be read (followed by `hint`), is longer than `most_bytes` or is not JSON.
nlohmann::json read_json_file(const std::string& path, std::streamoff most_bytes, const std::string& hint = "");

}  // namespace plait
