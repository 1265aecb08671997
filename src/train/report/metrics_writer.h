// Writes metrics.jsonl: one JSON object per logged step, in ascending order of "step", each step once. The first line that a
// start of the run writes also has its "environment" (train/report/environment.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/file.h"

namespace plait::train {

class MetricsWriter {
 public:
  // A new run: `resumed_step` is nullopt and the file must not exist (ConfigError). A resumed one: lines of steps after
  // `resumed_step`, and a line that a crash left half-written, are cut off once there is a line to write; any other line that
  // is not a JSON object with a "step" is a ConfigError that names file and line.
  MetricsWriter(const std::filesystem::path& path, std::optional<std::int64_t> resumed_step = std::nullopt);

  // `line` has an integer "step" greater than any before it (else InternalError). The line is in the file when this returns.
  void write(const nlohmann::ordered_json& line);

 private:
  std::uint64_t kept_bytes(std::int64_t resumed_step);
  File file_;
  std::optional<std::uint64_t> cut_;  // position of the next line, if that is not the end
  std::optional<std::int64_t> last_step_;
};

}  // namespace plait::train
