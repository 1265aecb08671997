#include "study/run_losses.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/run_directory.h"
#include "config/schema.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/record.h"
#include "data/tokenizer.h"
#include "model/model_flops.h"
#include "model/model_shape.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t longest_line = std::uint64_t{1} << 20;
constexpr int deepest_run = 3;
constexpr std::streamoff most_origin_bytes = std::streamoff{1} << 20;

// The last complete line of a file of JSON lines; null if there is none.
nlohmann::json last_line(const fs::path& path) {
  const File file = File::open_read(path);
  const std::uint64_t bytes = std::min(file.size(), longest_line);
  std::string text(bytes, '\0');
  file.read_at(file.size() - bytes, text.data(), bytes);
  const auto end = text.rfind('\n');  // a crash cut off the rest
  if (end == std::string::npos || end == 0) return {};
  const auto before = text.rfind('\n', end - 1);
  const std::size_t first = before == std::string::npos ? 0 : before + 1;
  nlohmann::json line = nlohmann::json::parse(text.substr(first, end - first), nullptr, false);
  if (!line.is_object()) throw ConfigError(path.string() + ": its last line is not a JSON object: take that line away");
  return line;
}

// Keys that decide which tokens a document becomes and which of them count, besides the tokenizer.
bool is_of_documents(const std::string& key) {
  const auto in = [&](const char* section) { return key.starts_with(section); };
  return in("data.jsonl.") || in("data.custom_template.") || in("data.document_token.") || key == "data.chat_template" ||
         key == "data.documents";
}

// The files whose ends are evaluated, source by source, with their weights if there is more than one source.
std::string evaluated_ends(const DataConfig& data) {
  const std::vector<DataSourceConfig> sources = data.training_sources();
  std::string text;
  for (const DataSourceConfig& source : sources) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", fmt::join(source.files, ", "));
    if (sources.size() > 1) text += fmt::format(" (weight {})", source.weight);
  }
  return text;
}

// The settings that comparable losses must share, by key: the same keys for all runs.
std::map<std::string, std::string> evaluation_of(const Config& config) {
  const DataConfig& data = config.data;
  const bool of_ends = data.validation.empty();
  std::map<std::string, std::string> evaluation = {
      {"data.train or data.sources", of_ends ? evaluated_ends(data) : ""},
      {"data.validation", fmt::format("{}", fmt::join(data.validation, ", "))},
      {"data.validation_fraction", of_ends ? fmt::format("{}", data.validation_fraction) : ""},
      {"data.tokenizer", data.tokenizer},
      {"data.sequence_length", std::to_string(data.sequence_length)},
      {"train.eval_batches * train.global_batch", std::to_string(config.train.eval_batches * config.train.global_batch)}};
  for (const config::Field& field : config::fields()) {
    if (is_of_documents(field.path)) evaluation[field.path] = config::yaml_text(field.get(config));
  }
  return evaluation;
}

std::vector<fs::path> runs_below(const fs::path& folder) {
  std::vector<fs::path> runs;
  std::error_code failed;
  fs::recursive_directory_iterator entry(folder, failed);
  for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) continue;
    const fs::path& path = entry->path();
    const bool is_run = fs::exists(path / "config.yaml", ignored) && fs::exists(path / "metrics.jsonl", ignored);
    if (is_run) runs.push_back(path);
    if (is_run || entry.depth() + 1 >= deepest_run) entry.disable_recursion_pending();
  }
  if (failed) throw ConfigError(folder.string() + ": cannot be listed: " + failed.message());
  std::ranges::sort(runs);
  return runs;
}

struct OpenRun {
  fs::path directory;
  Config config;
  std::string goes_on_from;  // the checkpoint whose optimizer state it took; "" if it took none
  std::string origin_digest;
  bool foreign_weights = false;
};

// The part of init_from.json that says what a run began with.
struct RunOrigin {
  std::string checkpoint, digest;
  bool optimizer = false;
};

void declare(auto& field, Of<RunOrigin> auto& origin) {
  field("checkpoint", origin.checkpoint);
  field("optimizer", origin.optimizer);
  field("digest", origin.digest);
}

OpenRun open_run(const fs::path& directory) {
  OpenRun run{directory, checkpoint::load_run_config(directory), "", "", false};
  const JsonSource source{.name = (directory / "init_from.json").string()};
  if (!fs::exists(source.name)) return run;
  const nlohmann::json json = read_json_file(source.name, most_origin_bytes);
  const auto origin = record_from<RunOrigin>(BasicJsonField(json, source));
  run.origin_digest = origin.digest;
  run.foreign_weights = !origin.optimizer;
  if (!run.foreign_weights) run.goes_on_from = origin.checkpoint;
  return run;
}

// The loss of a run at its end, or the reason why there is none.
std::optional<LossPoint> loss_of(const OpenRun& run, std::string& reason) {
  const Config& config = run.config;
  const nlohmann::json line = last_line(run.directory / "metrics.jsonl");
  const std::int64_t step =
      line.is_object() && line.contains("step") && line["step"].is_number_integer() ? line["step"].get<std::int64_t>() : 0;
  if (step < config.train.steps) {
    reason = fmt::format("it has come to step {} of {}", step, config.train.steps);
    return std::nullopt;
  }
  if (!line.contains("validation_loss") || !line["validation_loss"].is_number()) {
    reason = "it has no validation loss: it had no validation split";
    return std::nullopt;
  }
  const std::int64_t sequence = config.data.sequence_length;
  const model::ModelShape shape = model::resolve_shape(config.model, data::load_tokenizer(run.directory)->vocab(), sequence);
  return LossPoint{
      .parameters = static_cast<double>(model::flop_terms(shape, sequence).matrix_parameters),
      .tokens = static_cast<double>(step) * static_cast<double>(config.train.global_batch) * static_cast<double>(sequence),
      .loss = line["validation_loss"].get<double>()};
}

void require_same_evaluation(const OpenRun& first, const OpenRun& other) {
  const auto here = evaluation_of(first.config), there = evaluation_of(other.config);
  std::vector<ConfigProblem> problems;
  for (const auto& [key, value] : here) {
    const std::string& differs = there.at(key);
    if (value == differs) continue;
    problems.push_back(
        {other.directory.string() + ": " + key, differs,
         fmt::format("must be {}, as in {}: losses on different tokens cannot be compared", value, first.directory.string()),
         "", 0});
  }
  const auto ours = data::load_tokenizer(first.directory), theirs = data::load_tokenizer(other.directory);
  if (ours->definition() != theirs->definition()) {
    problems.push_back(
        {other.directory.string() + ": tokenizer", fmt::format("{} of {} tokens", theirs->kind(), theirs->vocab()),
         "must be that of " + first.directory.string() + ": losses per token of different tokens cannot be compared", "", 0});
  }
  if (!problems.empty()) throw ConfigError(problems);
}

// True if `run` is the trunk that `fork` left. If the folder has been moved since, the checkpoint itself tells.
bool is_trunk_of(const OpenRun& run, const OpenRun& fork) {
  if (fork.goes_on_from.empty()) return false;
  std::error_code ignored;
  if (fs::equivalent(checkpoint::run_directory_of(fork.goes_on_from), run.directory, ignored)) return true;
  const fs::path here = checkpoint::checkpoints_directory(run.directory) / fs::path(fork.goes_on_from).filename();
  return fs::exists(here, ignored) && checkpoint::CheckpointReader(here).digest() == fork.origin_digest;
}

}  // namespace

std::vector<LossPoint> RunLosses::points() const {
  std::vector<LossPoint> points;
  for (const Run& run : runs) points.push_back(run.point);
  return points;
}

RunLosses read_run_losses(const fs::path& folder) {
  if (!fs::is_directory(status_at(folder))) throw ConfigError(folder.string() + ": no such directory");
  std::vector<OpenRun> all;
  for (const fs::path& directory : runs_below(folder)) all.push_back(open_run(directory));
  if (all.empty())
    throw ConfigError(
        fmt::format("{}: no directory up to {} levels below it is a run, with a config.yaml and a metrics.jsonl; "
                    "of the runs of a study, name the study's own folder",
                    folder.string(), deepest_run));
  RunLosses losses;
  const OpenRun* first = nullptr;
  for (const OpenRun& run : all) {
    std::string reason;
    std::optional<LossPoint> point;
    if (run.foreign_weights) {
      reason = "it began with the weights of another run, without its step count";
    } else if (std::ranges::any_of(all, [&](const OpenRun& fork) { return is_trunk_of(run, fork); })) {
      reason = "it is a trunk: other runs go on from it";
    } else {
      point = loss_of(run, reason);
    }
    if (!point) {
      losses.left_out.push_back({run.directory, reason});
      continue;
    }
    if (first == nullptr) first = &run;
    require_same_evaluation(*first, run);
    losses.runs.push_back({run.directory, *point});
  }
  return losses;
}

}  // namespace plait::study
