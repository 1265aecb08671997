// JSON files that someone else may have written.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace plait {

// ConfigError naming the file if it cannot be read (followed by `hint` and the reason), is not a regular file, is longer than
// `most_bytes` or is not JSON.
nlohmann::json read_json_file(const std::string& path, std::uint64_t most_bytes, const std::string& hint = "");

}  // namespace plait
