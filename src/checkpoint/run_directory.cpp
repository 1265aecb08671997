#include "checkpoint/run_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "config/schedule_file.h"
#include "config/schema.h"
#include "core/error.h"
#include "core/file.h"

namespace plait::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr const char* kept_schedule = "schedule.csv";

// Uses the run's own copy of a file that the configuration names as it did at the start of the run.
void take_copy(const std::string& named, std::string& now, const fs::path& copy) {
  if (!now.empty() && now == named && fs::exists(copy)) now = copy.string();
}

// `path` and its missing parent folders, the innermost first.
std::vector<fs::path> missing_folders(fs::path path) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (; !path.empty() && !fs::exists(path, error) && !error; path = path.parent_path()) missing.push_back(path);
  return missing;
}

}  // namespace

fs::path create_run_directory(const RunConfig& run) {
  std::error_code error;
  fs::create_directories(run.dir, error);
  if (error) throw ConfigError({{"run.dir", run.dir, "cannot be created: " + error.message(), "", 0}});
  for (int number = 1, lost = 0;; ++number) {
    const fs::path path = fs::path(run.dir) / (number == 1 ? run.name : run.name + "-" + std::to_string(number));
    if (::mkdir(path.c_str(), 0700) == 0) return path;
    if (errno == ENOENT && ++lost < 10) {  // another start that was refused has removed run.dir, which it had made
      fs::create_directories(run.dir, error);
      --number;
      continue;
    }
    if (errno != EEXIST) {
      throw ConfigError({{"run.dir", path.string(), std::string("cannot be created: ") + std::strerror(errno), "", 0}});
    }
  }
}

UncertainRunDirectory::UncertainRunDirectory(const RunConfig& run)
    : made_for_it_(missing_folders(run.dir)), path_(create_run_directory(run)) {}

UncertainRunDirectory::~UncertainRunDirectory() {
  if (kept_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  for (const fs::path& folder : made_for_it_) fs::remove(folder, ignored);  // only if nobody else has put something there
}

fs::path run_directory_of(const fs::path& path) {
  const std::optional<FoundCheckpoint> checkpoint = checkpoint_of_run(path);
  return checkpoint ? checkpoint->run_dir : path;
}

Config load_run_config(const fs::path& run_dir, const std::vector<std::string>& overrides) {
  const fs::path path = run_dir / "config.yaml";
  if (!fs::exists(path)) {
    throw ConfigError(run_dir.string() +
                      (fs::exists(run_dir) ? ": not a run directory: it holds no config.yaml" : ": no such run directory"));
  }
  std::vector<std::string> all;
  if (const fs::path kept = run_dir / kept_schedule; fs::exists(kept))
    all.push_back("parallel.schedule.file=" + config::yaml_text(kept.string()));
  const Config started = load_config(path.string(), all);
  all.insert(all.end(), overrides.begin(), overrides.end());
  Config config = overrides.empty() ? started : load_config(path.string(), all);
  take_copy(started.data.huggingface.file, config.data.huggingface.file, run_dir / "tokenizer.json");
  take_copy(started.data.sentencepiece.model, config.data.sentencepiece.model, run_dir / "tokenizer.model");
  return config;
}

const std::string* config_text(const CheckpointReader& reader) {
  const auto config = reader.state().find("config");
  if (config == reader.state().end()) return nullptr;
  if (!config->is_string()) JsonField(*config, reader.state_source(), "state.config").refuse("must be a string");
  return config->get_ptr<const std::string*>();
}

Config load_config_of(const fs::path& path, const std::vector<std::string>& overrides) {
  if (!is_lone_checkpoint(path)) return load_run_config(run_directory_of(path), overrides);
  const CheckpointReader checkpoint(path);
  const std::string* config = config_text(checkpoint);
  if (config == nullptr) throw ConfigError(path.string() + ": holds no configuration: give a configuration file too");
  return parse_config(*config, overrides, (path / Manifest::file_name).string());
}

void keep_config(const fs::path& run_dir, const Config& config) {
  // Written before config.yaml, so that a reader who finds a configuration finds its schedule too.
  if (config.parallel.schedule_file) write_text_file(run_dir / kept_schedule, config.parallel.schedule_file->text);
  write_text_file(run_dir / "config.yaml", to_yaml(config));
}

std::string changed_schedule(const fs::path& run_dir, const Config& config) {
  const fs::path kept = run_dir / kept_schedule;
  std::string problem;
  const auto was = read_schedule_file(kept.string(), problem);
  if (!was) return "";
  if (!config.parallel.schedule_file || config.parallel.schedule_file->text != was->text) {
    return "parallel.schedule is not the one that the run was started with, which is kept in " + kept.string();
  }
  try {
    const Config original = load_config((run_dir / "config.yaml").string());
    if (original.parallel.schedule_file && original.parallel.schedule_file->text == was->text) return "";
  } catch (const ConfigError&) {
    // The file is gone, or no longer valid.
  }
  return "the file of parallel.schedule is gone or has changed since the run was started; it goes on with " + kept.string();
}

}  // namespace plait::checkpoint
