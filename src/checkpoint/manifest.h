// state.json, the manifest of a checkpoint: a description of its files, and the trainer's own state.
//
//   {"xxh3": "<XXH3-64 of all bytes after this line>",
//   "format": "plait-checkpoint", "version": 1, "step": 100,
//   "files": [{"name", "bytes", "header_xxh3", "tensors": {"<name>": "<XXH3-64 of its bytes>"}}],
//   "state": {...}}
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plait::checkpoint {

struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t header_xxh3 = 0;
  std::map<std::string, std::uint64_t, std::less<>> tensors;  // name -> XXH3-64
};

struct Manifest {
  static constexpr int version = 1;
  static constexpr const char* file_name = "state.json";
  std::int64_t step = 0;
  std::vector<ManifestFile> files;
  nlohmann::ordered_json state;  // an object; its members are checked by who reads them (CheckpointReader::state_source)
};

std::string to_text(const Manifest& manifest);

// `path` is for messages. ConfigError naming `path` and the member for any text that to_text does not write: members missing,
// of other types, out of range, nested too deep, too many.
Manifest parse_manifest(const std::string& text, const std::filesystem::path& path);

// The checksum at the beginning of a text that parse_manifest accepts: 16 hexadecimal digits.
std::string manifest_digest(const std::string& text);

}  // namespace plait::checkpoint
