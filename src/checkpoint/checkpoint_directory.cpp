#include "checkpoint/checkpoint_directory.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <system_error>

#include "checkpoint/checkpoint_reader.h"
#include "core/error.h"
#include "core/file.h"

namespace plait::checkpoint {
namespace {

constexpr std::string_view step_prefix = "step-";
constexpr std::string_view temporary_prefix = ".tmp-";

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", step_prefix, step); }

bool directory_exists(const std::filesystem::path& path) { return std::filesystem::is_directory(status_at(path)); }

struct StepDirectory {
  std::filesystem::path directory;
  std::int64_t step = 0;
};

// The checkpoints of the run, newest first.
std::vector<StepDirectory> entries(const std::filesystem::path& run_dir) {
  std::vector<StepDirectory> found;
  if (!directory_exists(checkpoints_directory(run_dir))) return found;
  for (const auto& path : list_directory(checkpoints_directory(run_dir))) {
    if (const auto step = step_of(path)) found.push_back({path, *step});
  }
  std::sort(found.begin(), found.end(), [](const StepDirectory& a, const StepDirectory& b) { return a.step > b.step; });
  return found;
}

CheckpointStatus check_entry(const StepDirectory& entry) {
  CheckpointStatus status{entry.directory, entry.step, ""};
  try {
    CheckpointReader(entry.directory).verify();
  } catch (const ConfigError& error) {
    status.problem = error.what();
  }
  return status;
}

FoundCheckpoint accept_or_offer(const std::filesystem::path& run_dir, const std::vector<StepDirectory>& all,
                                const StepDirectory& wanted) {
  const CheckpointStatus status = check_entry(wanted);
  if (status.good()) return {run_dir, wanted.directory, wanted.step};
  std::string message = "checkpoint " + wanted.directory.string() + " cannot be used: " + status.problem;
  for (const StepDirectory& entry : all) {
    if (entry.step >= wanted.step || !check_entry(entry).good()) continue;
    throw ConfigError(message + "\n  The newest good one before it is step " + std::to_string(entry.step) +
                      "; to take that one, give " + entry.directory.string());
  }
  throw ConfigError(message + "\n  There is no good checkpoint before it in " + checkpoints_directory(run_dir).string());
}

}  // namespace

std::filesystem::path checkpoints_directory(const std::filesystem::path& run_dir) { return run_dir / "checkpoints"; }

std::filesystem::path checkpoint_directory(const std::filesystem::path& run_dir, std::int64_t step) {
  return checkpoints_directory(run_dir) / step_name(step);
}

std::filesystem::path temporary_directory(const std::filesystem::path& run_dir, std::int64_t step) {
  return checkpoints_directory(run_dir) / (std::string(temporary_prefix) + step_name(step));
}

std::optional<std::int64_t> step_of(const std::filesystem::path& directory) {
  const std::string name = directory.filename().string();
  if (!name.starts_with(step_prefix)) return std::nullopt;
  const std::string digits = name.substr(step_prefix.size());
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  const std::int64_t step = std::stoll(digits);
  return step_name(step) == name ? std::optional(step) : std::nullopt;
}

std::optional<FoundCheckpoint> checkpoint_of_run(const std::filesystem::path& path) {
  const auto by_name = [](std::filesystem::path place) -> std::optional<FoundCheckpoint> {
    if (!place.has_filename()) place = place.parent_path();  // "step-00000020/"
    const std::optional<std::int64_t> step = step_of(place);
    const std::filesystem::path parent = place.parent_path();
    if (!step || parent.filename() != "checkpoints") return std::nullopt;
    return FoundCheckpoint{parent.parent_path(), place, *step};
  };
  std::error_code ignored;
  const auto named = by_name(std::filesystem::absolute(path, ignored).lexically_normal());
  if (named && std::filesystem::exists(named->run_dir / "config.yaml", ignored)) return named;
  return by_name(std::filesystem::weakly_canonical(path, ignored));
}

std::vector<CheckpointStatus> list_checkpoints(const std::filesystem::path& run_dir) {
  std::vector<CheckpointStatus> statuses;
  for (const StepDirectory& entry : entries(run_dir)) statuses.push_back(check_entry(entry));
  return statuses;
}

FoundCheckpoint find_checkpoint(const std::filesystem::path& path) {
  if (!directory_exists(path)) throw ConfigError("there is no checkpoint in " + path.string() + ": no such directory");
  if (const auto named = checkpoint_of_run(path))
    return accept_or_offer(named->run_dir, entries(named->run_dir), {named->directory, named->step});
  const std::vector<StepDirectory> all = entries(path);
  if (all.empty())
    throw ConfigError("there is no checkpoint in " + path.string() + ": it has no checkpoints/step-... directory");
  return accept_or_offer(path, all, all.front());
}

bool is_lone_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path / Manifest::file_name, ignored) && !checkpoint_of_run(path);
}

std::vector<std::filesystem::path> set_aside_after(const std::filesystem::path& run_dir, std::int64_t step) {
  std::vector<std::filesystem::path> renamed;
  for (const StepDirectory& entry : entries(run_dir)) {
    if (entry.step <= step) continue;
    const std::string base = "abandoned-" + entry.directory.filename().string();
    std::filesystem::path target = entry.directory.parent_path() / base;
    for (int n = 2; std::filesystem::exists(target); ++n)
      target = entry.directory.parent_path() / fmt::format("{}.{}", base, n);
    rename_path(entry.directory, target);
    renamed.push_back(target);
  }
  if (!renamed.empty()) sync_directory(checkpoints_directory(run_dir));
  return renamed;
}

Pruned prune_checkpoints(const std::filesystem::path& run_dir, std::int64_t keep) {
  require(keep >= 1, "checkpoint.keep has to be at least 1");
  Pruned pruned;
  const std::vector<StepDirectory> all = entries(run_dir);
  for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i) {
    // Renamed first, because an interrupted removal must not leave half a checkpoint under a checkpoint's name.
    const std::filesystem::path doomed = temporary_directory(run_dir, all[i].step);
    std::error_code error;
    std::filesystem::rename(all[i].directory, doomed, error);
    if (!error) std::filesystem::remove_all(doomed, error);
    if (error) {
      pruned.problems.push_back("cannot remove " + all[i].directory.string() + ": " + error.message());
    } else {
      pruned.removed.push_back(all[i].directory);
    }
  }
  return pruned;
}

std::vector<std::string> remove_leftovers(const std::filesystem::path& run_dir, std::int64_t step) {
  std::vector<std::string> problems;
  if (!directory_exists(checkpoints_directory(run_dir))) return problems;
  for (const auto& leftover : list_directory(checkpoints_directory(run_dir))) {
    if (!leftover.filename().string().starts_with(temporary_prefix)) continue;
    std::error_code error;
    std::filesystem::remove_all(leftover, error);
    if (!error) continue;
    problems.push_back("cannot remove " + leftover.string() +
                       ", left of an unfinished or an old checkpoint: " + error.message());
    if (leftover.filename() == temporary_directory(run_dir, step).filename())
      throw ConfigError(problems.back() + "; remove it, as this step is to be written there");
  }
  return problems;
}

}  // namespace plait::checkpoint
