// The checkpoints of a run: finds, lists and prunes RUN_DIR/checkpoints/step-00000100/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace plait::checkpoint {

std::filesystem::path checkpoints_directory(const std::filesystem::path& run_dir);
std::filesystem::path checkpoint_directory(const std::filesystem::path& run_dir, std::int64_t step);
std::filesystem::path temporary_directory(const std::filesystem::path& run_dir, std::int64_t step);

// The step in a checkpoint directory's name, "step-00000100" or a path that ends so; nullopt for any other name.
std::optional<std::int64_t> step_of(const std::filesystem::path& directory);

struct CheckpointStatus {
  std::filesystem::path directory;
  std::int64_t step = 0;
  std::string problem;  // empty: good
  bool good() const { return problem.empty(); }
};

// Every checkpoint of the run, newest first. Reads all bytes of all of them to verify the checksums.
std::vector<CheckpointStatus> list_checkpoints(const std::filesystem::path& run_dir);

struct FoundCheckpoint {
  std::filesystem::path run_dir;
  std::filesystem::path directory;
  std::int64_t step = 0;
};

// The checkpoint and the run that `path` names as RUN_DIR/checkpoints/step-..., unverified; nullopt for any other path. The
// path counts as written if that leads to a run, since checkpoints/ may be a link to another disk; otherwise links are
// followed.
std::optional<FoundCheckpoint> checkpoint_of_run(const std::filesystem::path& path);

// The meaning of `--resume PATH`. A run directory: its newest checkpoint; RUN_DIR/checkpoints/step-...: that one. The
// checkpoint has been verified, checksums included. A torn or corrupt one is refused with a ConfigError that names it, says
// what is wrong and offers the newest good one before it: going back in time is for the user to decide.
FoundCheckpoint find_checkpoint(const std::filesystem::path& path);

// True for a checkpoint outside any run directory, such as a copy under any name.
bool is_lone_checkpoint(const std::filesystem::path& path);

// Renames checkpoints newer than `step` to "abandoned-step-...", which nothing lists or prunes; returns the new names. A run
// that resumes from `step` calls this first: otherwise its own later checkpoints would mix with those of the history it left.
std::vector<std::filesystem::path> set_aside_after(const std::filesystem::path& run_dir, std::int64_t step);

struct Pruned {
  std::vector<std::filesystem::path> removed;
  std::vector<std::string> problems;
};
// Removes all but the newest `keep` (>= 1) checkpoints. Failures to remove are reported, not thrown.
Pruned prune_checkpoints(const std::filesystem::path& run_dir, std::int64_t keep);

// Removes the remains of crashed writers and interrupted removals before `step` is written. Failures are returned, in words; a
// ConfigError if one is in the way of this step.
std::vector<std::string> remove_leftovers(const std::filesystem::path& run_dir, std::int64_t step);

}  // namespace plait::checkpoint
