#include "train/report/metrics_writer.h"

#include <fstream>
#include <string>
#include <utility>

#include "core/error.h"

namespace plait::train {
namespace {

std::optional<std::int64_t> step_in(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  return json["step"].get<std::int64_t>();
}

}  // namespace

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::optional<std::int64_t> resumed_step)
    : file_(File::open_append(path)) {
  if (resumed_step) {
    cut_ = kept_bytes(*resumed_step);
  } else if (file_.size() > 0) {
    throw ConfigError(path.string() +
                      " exists already: choose another run.name or run.dir, or continue that run with --resume");
  }
}

std::uint64_t MetricsWriter::kept_bytes(std::int64_t resumed_step) {
  std::ifstream in(file_.path(), std::ios::binary);
  std::string line;
  std::uint64_t kept = 0;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (in.eof()) break;  // no newline at the end: torn by a crash
    const auto step = step_in(line);
    if (!step) {
      throw ConfigError(file_.path().string() + ", line " + std::to_string(number) +
                        ": not a JSON object with an integer \"step\": take that line away");
    }
    if (*step > resumed_step) break;
    last_step_ = *step;
    kept += line.size() + 1;
  }
  if (in.bad()) throw ConfigError("cannot read " + file_.path().string());
  return kept;
}

void MetricsWriter::write(const nlohmann::ordered_json& line) {
  const auto step = line.at("step").get<std::int64_t>();
  require(!last_step_ || step > *last_step_,
          "metrics of step " + std::to_string(step) + " after those of step " + std::to_string(last_step_.value_or(0)));
  if (cut_) file_.truncate(*std::exchange(cut_, std::nullopt));
  file_.append(line.dump() + "\n");
  last_step_ = step;
}

}  // namespace plait::train
