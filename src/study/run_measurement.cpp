#include "study/run_measurement.h"

#include <spdlog/fmt/fmt.h>

#include <limits>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace plait::study {
namespace {

constexpr std::uint64_t most_metrics_bytes = std::uint64_t{1} << 30;

}  // namespace

Measurement measurement_of_run(const std::filesystem::path& run_dir, const PointFacts& facts) {
  const std::filesystem::path path = run_dir / "metrics.jsonl";
  Measurement m;
  m.tokens_per_step = facts.tokens_per_step();
  const std::int64_t most_steps = std::numeric_limits<std::int64_t>::max() / m.tokens_per_step;
  std::istringstream lines(read_text(path, most_metrics_bytes));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const JsonSource source{.name = fmt::format("{}:{}", path.string(), ++number)};
    const auto json = nlohmann::ordered_json::parse(line, nullptr, false);
    if (!json.is_object()) throw ConfigError(source.name + ": is not a JSON object: take that line away");
    const JsonField line_json(json, source);
    const auto number_of = [&](const char* key) {
      const JsonField field = line_json[key];
      return field.is_there() ? std::optional(field.number()) : std::nullopt;
    };
    const double milliseconds = line_json["step_ms"].number();
    if (!(milliseconds > 0)) line_json.refuse("step_ms", "must be above 0");
    if (number == 2) m.step_ms.clear();  // the first step's
    m.step_ms.push_back(milliseconds);
    m.tokens = line_json["step"].whole(1, most_steps) * m.tokens_per_step;
    m.loss = line_json["loss"].number();
    m.validation_loss = number_of("validation_loss");
    const auto flops = number_of("tflops_per_gpu"), utilization = number_of("mfu");
    if (flops && utilization && *utilization > 0) m.peak_flops = *flops * 1e12 / *utilization;
    const auto bytes = static_cast<double>(line_json["peak_bytes"].whole_or(0, 0, std::numeric_limits<std::int64_t>::max()));
    m.memory = {{.planned_bytes = bytes, .allocated_bytes = bytes, .device_bytes = 0}};
  }
  if (!m.validation_loss) {
    throw ConfigError(path.string() +
                      ": no validation loss at the end: give data.validation or data.validation_fraction, of whole sequences");
  }
  return m;
}

}  // namespace plait::study
