#include "study/run_measurement.h"

#include <spdlog/fmt/fmt.h>

#include <limits>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/json_fields.h"

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
    const std::string source = fmt::format("{}:{}", path.string(), ++number);
    const auto json = nlohmann::ordered_json::parse(line, nullptr, false);
    if (!json.is_object()) throw ConfigError(source + ": is not a JSON object: take that line away");
    const JsonFields fields(json, source);
    const double milliseconds = fields.number("step_ms");
    if (!(milliseconds > 0)) fields.fail("step_ms", "above 0");
    if (number == 2) m.step_ms.clear();  // drops the first step's
    m.step_ms.push_back(milliseconds);
    m.tokens = fields.integer("step", 1, most_steps) * m.tokens_per_step;
    m.loss = fields.number("loss");
    m.validation_loss = fields.maybe_number("validation_loss");
    const auto flops = fields.maybe_number("tflops_per_gpu"), utilization = fields.maybe_number("mfu");
    if (flops && utilization && *utilization > 0) m.peak_flops = *flops * 1e12 / *utilization;
    const auto bytes =
        static_cast<double>(fields.maybe_integer("peak_bytes", 0, std::numeric_limits<std::int64_t>::max()).value_or(0));
    m.memory = {{.planned_bytes = bytes, .allocated_bytes = bytes, .device_bytes = 0}};
  }
  if (!m.validation_loss) {
    throw ConfigError(path.string() +
                      ": no validation loss at the end: give data.validation or data.validation_fraction, of whole sequences");
  }
  return m;
}

}  // namespace plait::study
