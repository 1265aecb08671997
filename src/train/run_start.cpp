#include "train/run_start.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/run_directory.h"
#include "core/error.h"
#include "core/file.h"
#include "core/message.h"
#include "core/utf8.h"
#include "data/tokenizer.h"
#include "interop/foreign_models.h"
#include "interop/foreign_weights.h"
#include "train/initial_weights.h"
#include "train/learning_rate.h"
#include "train/sample_record.h"

namespace plait::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_path = 4096, longest_digest = 16;
constexpr std::chrono::milliseconds seen_late{1000};  // for a file that another host has just written

// Takes the lock of a run's directory, before anything in it is read or written.
using Own = std::function<void(const fs::path& run_dir)>;

// A note if run.dir and run.name differ from the run's own, which are kept: a run does not move.
std::string ignored_place(const Config& config, const fs::path& run_dir) {
  try {
    const RunConfig was = checkpoint::load_run_config(run_dir).run;
    if (config.run.dir == was.dir && config.run.name == was.name) return "";
  } catch (const ConfigError&) {
    return "";  // it is gone, or cannot run any more
  }
  return fmt::format(
      "run.dir={} and run.name={} have no effect: a run that is resumed stays in {} (elsewhere: --init-from, "
      "--with-optimizer)",
      config.run.dir, config.run.name, run_dir.string());
}

RunStart resume_run(const Config& config, const fs::path& path, const Own& own, RunOrigin& origin) {
  std::error_code missing;  // reported by find_checkpoint
  // In this order: links in `path` may lead out of the run, if checkpoints/ is one.
  const fs::path run_dir = fs::canonical(checkpoint::run_directory_of(path), missing);
  if (fs::is_directory(checkpoint::checkpoints_directory(run_dir), missing)) own(run_dir);
  const checkpoint::FoundCheckpoint found = checkpoint::find_checkpoint(path);
  const checkpoint::CheckpointReader reader(found.directory);
  require_same_model(config, reader, found.run_dir);
  origin.init_from = reader.state().value("init_from", nlohmann::ordered_json());
  origin.notes.push_back(fmt::format("resumed {} after step {}", path.string(), found.step));
  if (std::string place = ignored_place(config, found.run_dir); !place.empty()) origin.notes.push_back(std::move(place));
  if (const std::optional<Config> before = config_under(reader)) {
    const std::string moved = moved_schedule(before->train, config.train, found.step);
    if (!moved.empty()) origin.notes.push_back(moved);
    if (std::string changed = changed_moments(*before, config); !changed.empty()) origin.notes.push_back(std::move(changed));
  }
  if (!has_sample_record(reader)) refuse_unrecorded_order(reader);
  return {.run_dir = found.run_dir,
          .checkpoint = found.directory,
          .owner = {},  // of no run in particular, see agree_on_start()
          .digest = reader.digest(),
          .resumed = true,
          .step = found.step,
          .samples = samples_taken(reader)};
}

RunStart new_run(const Config& config, const data::Tokenizer& tokenizer, const Own& own, RunOrigin& origin) {
  RunStart start;
  origin.uncertain = std::make_unique<checkpoint::UncertainRunDirectory>(config.run);
  start.run_dir = origin.uncertain->path();
  own(start.run_dir);
  tokenizer.save(start.run_dir);
  checkpoint::keep_config(start.run_dir, config);
  return start;
}

// The number of samples that a run continuing from `checkpoint` counts as used.
std::int64_t samples_before(const Config& config, const fs::path& checkpoint, RunOrigin& origin) {
  const checkpoint::CheckpointReader reader(checkpoint);
  if (has_sample_record(reader)) return samples_taken(reader);
  origin.notes.push_back(
      fmt::format("{} does not say which samples its steps took: counted as {} steps of train.global_batch={}",
                  checkpoint.string(), reader.step(), config.train.global_batch));
  return reader.step() * config.train.global_batch;
}

RunStart initialized_run(const Config& config, const Own& own, RunOrigin& origin) {
  InitialWeights weights = open_initial_weights(config);
  const bool optimizer = config.train.init_from.optimizer;
  const std::int64_t samples = optimizer ? samples_before(config, weights.checkpoint.directory, origin) : 0;
  RunStart start = new_run(config, *weights.tokenizer, own, origin);
  write_text_file(start.run_dir / "init_from.json", weights.record.dump(2) + "\n");
  interop::keep_side_files(start.run_dir, weights.record);
  start.checkpoint = weights.checkpoint.directory;
  start.digest = weights.record.at("digest").get<std::string>();
  if (optimizer) start.step = weights.checkpoint.step;
  start.samples = samples;
  start.restored = optimizer ? checkpoint::Restored::everything : checkpoint::Restored::weights;
  origin.init_from = std::move(weights.record);
  origin.notes.insert(origin.notes.end(), weights.notes.begin(), weights.notes.end());
  origin.notes.push_back(optimizer ? fmt::format("weights, moments and step count from {}: goes on after step {}",
                                                 start.checkpoint.string(), start.step)
                                   : fmt::format("weights from {}, of step {}: starts at step 0 with fresh moments",
                                                 start.checkpoint.string(), weights.checkpoint.step));
  return start;
}

// Rank 0 tells the others paths as text (comm/word.h).
void require_tellable(const std::string& key, const std::string& path) {
  const bool has_control = std::ranges::any_of(path, is_control);
  if (!has_control && !first_invalid_utf8(path)) return;
  throw ConfigError({{key, printable(path),
                      fmt::format("{}: a path that several ranks are told must be UTF-8 without control characters",
                                  has_control ? "has control characters" : "is not UTF-8"),
                      "", 0}});
}

// Checks all paths that rank 0 is going to send, before anything is made or read.
void require_tellable_paths(const Config& config, const fs::path& resume) {
  const auto existing = [](const std::string& key, const fs::path& path) {
    std::error_code missing;  // reported later
    require_tellable(key, path.string());
    require_tellable(key, fs::weakly_canonical(path, missing).string());
  };
  if (!resume.empty()) return existing("--resume", resume);
  require_tellable("run.dir", config.run.dir);
  require_tellable("run.name", config.run.name);
  if (!config.train.init_from.path.empty()) existing("train.init_from.path", config.train.init_from.path);
}

// All ranks write there. A directory of the same path on another host would get a part of each checkpoint.
void require_directory_of_rank_0(const Config& config, const RunStart& start, comm::Meeting& meeting) {
  const auto busy = meeting.busy();
  if (checkpoint::RunLock::is_owned_by(start.run_dir, start.owner, seen_late)) return;
  meeting.check();  // a job that has ended has removed the directory
  const std::string value = start.resumed ? start.run_dir.string() : config.run.dir;
  throw ConfigError(
      {{start.resumed ? "--resume" : "run.dir", value,
        "is not the directory that rank 0 has: all ranks need it on a file system that their hosts share", "", 0}});
}

struct PathRule {
  fs::path read(const JsonField& field) const { return field.text(longest_path); }
  std::string write(const fs::path& path) const { return path.string(); }
};

struct WeightsOnlyRule {
  checkpoint::Restored read(const JsonField& field) const {
    return field.flag() ? checkpoint::Restored::weights : checkpoint::Restored::everything;
  }
  bool write(checkpoint::Restored restored) const { return restored == checkpoint::Restored::weights; }
};

}  // namespace

void declare(auto& field, Of<RunStart> auto& start) {
  field("run_dir", start.run_dir, PathRule());
  field("checkpoint", start.checkpoint, PathRule());
  field("owner", start.owner);
  field("digest", start.digest, record::text(longest_digest));
  field("resumed", start.resumed);
  field("weights_only", start.restored, WeightsOnlyRule());
  field("step", start.step, record::whole(0));
  field("samples", start.samples, record::whole(0));
}

nlohmann::ordered_json word_of(const RunStart& start) { return record_json(start); }

RunStart agree_on_start(const Config& config, const fs::path& resume, comm::Meeting& meeting,
                        std::optional<checkpoint::RunLock>& lock, RunOrigin& origin) {
  const Own own = [&](const fs::path& run_dir) {
    lock = checkpoint::RunLock::own(run_dir, meeting.timeout(), message_to_stderr);
    if (!lock->warning().empty()) message_to_stderr("warning: " + lock->warning());
  };
  RunStart agreed = meeting.tell(0, "start", [&] {
    const auto busy = meeting.busy();
    if (meeting.members().size() > 1) require_tellable_paths(config, resume);
    RunStart start = !resume.empty()                        ? resume_run(config, resume, own, origin)
                     : !config.train.init_from.path.empty() ? initialized_run(config, own, origin)
                                                            : new_run(config, *data::create_tokenizer(config), own, origin);
    if (lock) start.owner = lock->owner();
    return start;
  });
  if (meeting.rank() != 0) {
    require_directory_of_rank_0(config, agreed, meeting);
    lock = checkpoint::RunLock::join(agreed.run_dir);
  }
  return agreed;
}

void verify_copies(const checkpoint::WeightsReader& weights, comm::Meeting& meeting) {
  const auto busy = meeting.busy();
  const std::string own = checkpoint::files_identity(weights.directory());
  const std::vector<std::string> all = meeting.gather("weights", own);
  if (std::ranges::count(all, all.front()) == std::ssize(all)) return;
  const auto first = std::ranges::find(all, own);
  const bool is_first = first - all.begin() == meeting.rank();
  if (is_first && first != all.begin()) weights.verify();
  const bool has_checksums = !interop::is_model_directory(weights.directory());
  const std::vector<std::string> contents = meeting.gather(
      "weights verified", is_first && !has_checksums ? checkpoint::contents_digest(weights.directory()) : std::string());
  if (contents[static_cast<std::size_t>(first - all.begin())] != contents.front()) {
    throw ConfigError(weights.directory().string() +
                      ": its files of tensors hold other bytes here than on rank 0: copy them again");
  }
}

}  // namespace plait::train
