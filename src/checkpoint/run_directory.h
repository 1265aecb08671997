// The run directory, RUN_DIR: config.yaml (resolved), schedule.csv (a schedule from a file), environment.json (of its last
// start), init_from.json (for weights from another run), huggingface/ (for weights from such a model), plan.json,
// metrics.jsonl, tokenizer, TensorBoard events, checkpoints/, owner.lock and ranks.lock (run_lock.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace plait::checkpoint {

class CheckpointReader;

// Creates DIR/NAME, private to the user (0700). An existing one is never overwritten: the next free of NAME-2, NAME-3, ... is
// used instead.
std::filesystem::path create_run_directory(const RunConfig& run);

// A new run directory while it is not certain that the run will start: the destructor removes it, with its contents and the
// folders that were made for it, unless it was kept.
class UncertainRunDirectory {
 public:
  explicit UncertainRunDirectory(const RunConfig& run);
  UncertainRunDirectory(const UncertainRunDirectory&) = delete;
  UncertainRunDirectory& operator=(const UncertainRunDirectory&) = delete;
  ~UncertainRunDirectory();

  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::vector<std::filesystem::path> made_for_it_;  // the innermost first
  std::filesystem::path path_;
  bool kept_ = false;
};

// The run directory that `path` (the directory itself or one of its checkpoints) belongs to.
std::filesystem::path run_directory_of(const std::filesystem::path& path);

// Keeps the files that a new run needs: its resolved configuration, and the file that its schedule is from.
void keep_config(const std::filesystem::path& run_dir, const Config& config);

// The configuration a run was started with. Its schedule and its tokenizer come from the kept files, regardless of the
// originals.
Config load_run_config(const std::filesystem::path& run_dir, const std::vector<std::string>& overrides = {});

// The text of the configuration that a checkpoint was written under; null if it keeps none. Valid as long as the reader.
const std::string* config_text(const CheckpointReader& reader);

// The configuration that a run, or a checkpoint's run, was started with. ConfigError if a lone checkpoint holds none.
Config load_config_of(const std::filesystem::path& run_or_checkpoint, const std::vector<std::string>& overrides = {});

// A note if `config`, with which a run is to go on, has another schedule file than at the start of the run, or if the original
// of that file is gone or has changed; "" if neither. Both are allowed: a layout may change too.
std::string changed_schedule(const std::filesystem::path& run_dir, const Config& config);

}  // namespace plait::checkpoint
