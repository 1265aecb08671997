#include "study/training_runs.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "checkpoint/checkpoint_directory.h"
#include "config/schema.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "study/isoflop_grid.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;

constexpr const char* run_name = "run";

// `from`: the run that it continues; "" for none.
std::vector<std::string> arguments_of(const StudyFolder& folder, const Point& point, const fs::path& run,
                                      std::vector<std::string> overrides, const fs::path& from) {
  std::vector<std::string> arguments{"train"};
  for (std::string& word : folder.config_arguments(point)) arguments.push_back(std::move(word));
  overrides.push_back("run.dir=" + config::yaml_text(run.parent_path().string()));
  overrides.push_back("run.name=" + config::yaml_text(run.filename().string()));
  for (std::string& text : overrides) arguments.insert(arguments.end(), {"--set", std::move(text)});
  if (!from.empty()) arguments.insert(arguments.end(), {"--init-from", from.string(), "--with-optimizer"});
  return arguments;
}

// Equal for points that differ only in length.
std::string size_of(Config config) {
  config.train.steps = 1;
  return to_yaml(config);
}

constexpr std::uint64_t most_metrics_bytes = std::uint64_t{1} << 30;

}  // namespace

fs::path run_of(const StudyFolder& folder, const Point& point) {
  return folder.path() / "points" / std::to_string(point.index) / run_name;
}

std::vector<TrainingRun> training_runs(const StudyFolder& folder, const Point& point, const std::string& log) {
  const Config config = folder.config_of(point);
  const fs::path run = run_of(folder, point);
  const std::vector<TrainingRun> alone{{arguments_of(folder, point, run, {}, {}), run, log}};
  if (config.train.optimizer.schedule != Decay::wsd) return alone;
  std::vector<std::int64_t> lengths;
  int first = point.index;
  for (const Point& other : folder.data().points) {
    if (other.pruning) continue;
    const Config of_other = folder.config_of(other);
    if (size_of(of_other) != size_of(config)) continue;
    lengths.push_back(of_other.train.steps);
    first = std::min(first, other.index);
  }
  lengths = lengths_that_fork(config, lengths);
  if (lengths.size() < 2 || !std::ranges::binary_search(lengths, config.train.steps)) return alone;
  const fs::path trunk = folder.path() / "trunks" / std::to_string(first);
  std::vector<TrainingRun> runs;
  fs::path from;
  for (const TrunkFork& fork : wsd_forks(config, lengths)) {
    const fs::path piece = trunk / fmt::format("step-{}", fork.fork_step);
    if (!fs::exists(checkpoint::checkpoint_directory(piece, fork.fork_step))) {
      std::vector<std::string> overrides = fork.trunk_overrides;
      overrides.insert(overrides.end(), {"checkpoint.every=0", "checkpoint.final=true"});
      runs.push_back({arguments_of(folder, point, piece, overrides, from), piece, fmt::format("trunk-{}.log", fork.fork_step)});
    }
    from = piece;
    if (fork.steps < config.train.steps) continue;
    runs.push_back({arguments_of(folder, point, run, fork.fork_overrides, from), run, log});
    break;
  }
  return runs;
}

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
