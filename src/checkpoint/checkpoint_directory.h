// The checkpoints of a run: RUN_DIR/checkpoints/step-00000100/.
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

// The checkpoint and the run that `path` names as RUN_DIR/checkpoints/step-..., unverified; nullopt for any other path. It is
// taken as it is written where that leads to a run, since checkpoints/ may be a link to another disk, or else as links lead.
std::optional<FoundCheckpoint> checkpoint_of_run(const std::filesystem::path& path);

// What PATH of `--resume PATH` means. A run directory: its newest checkpoint; RUN_DIR/checkpoints/step-...: that one. The
// checkpoint has been verified, checksums included. A torn or corrupt one is refused with a ConfigError that names it, says
// what is wrong and offers the newest good one before it: going back in time is for the user to decide.
FoundCheckpoint find_checkpoint(const std::filesystem::path& path);

// A checkpoint that is in no run directory: a copy, say, under any name.
bool is_lone_checkpoint(const std::filesystem::path& path);

// As find_checkpoint, for whom only reads weights (open_weights() in weights_reader.h): it may be a lone checkpoint, or a model
// of transformers. Either is then `run_dir` too.
FoundCheckpoint find_weights(const std::filesystem::path& path);

// Renames checkpoints newer than `step` to "abandoned-step-...", which nothing lists or prunes; returns the new names. A run
// that resumes from `step` calls this first: its own later checkpoints would otherwise mix with those of the history it left.
std::vector<std::filesystem::path> set_aside_after(const std::filesystem::path& run_dir, std::int64_t step);

struct Pruned {
  std::vector<std::filesystem::path> removed;
  std::vector<std::string> problems;
};
// Removes all but the newest `keep` (>= 1) checkpoints. What it cannot remove is reported, not thrown.
Pruned prune_checkpoints(const std::filesystem::path& run_dir, std::int64_t keep);

// Removes what crashed writers and interrupted removals left behind, before `step` is written. What it cannot remove is
// returned, in words; a ConfigError where that is in the way of this step.
std::vector<std::string> remove_leftovers(const std::filesystem::path& run_dir, std::int64_t step);

}  // namespace plait::checkpoint
