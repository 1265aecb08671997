// Writes one checkpoint with any number of ranks, each writing the elements it owns straight into shared files.
//
//   rank 0        auto writer = CheckpointWriter::begin(run_dir, step, files);
//                 -- barrier --
//   other ranks   auto writer = CheckpointWriter::open(run_dir, step, rank);
//   every rank    writer.write("blocks.0.norm1.weight", first, count, data);  ...  writer.finish();
//                 -- barrier --
//   rank 0        writer.commit(state, keep);
//
// Tensors are global, so the layout that wrote a checkpoint leaves no trace in it and any layout can read it. All work happens
// in a private directory next to the target, which is renamed into place at the end: a crash at any point leaves earlier
// checkpoints as they were, and a `.tmp-` directory that the next begin() removes.
//
// Ranks may be threads or processes; between hosts the run directory has to be on a shared file system. Failures of the file
// system (disk full, I/O error, permission) are ConfigError and name the file; elements that no rank or two ranks wrote are
// InternalError and name the tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/file.h"

namespace plait::checkpoint {

// The elements of a tensor that have been written, as a set of disjoint runs.
class Coverage {
 public:
  using Run = std::pair<std::int64_t, std::int64_t>;  // [first, end)

  // Adds [first, first + count); false, and nothing is added, if any element of it is already there.
  bool add(std::int64_t first, std::int64_t count);

  // The first run of [0, elements) that is not covered.
  std::optional<Run> missing(std::int64_t elements) const;

  // Disjoint, neighbours joined: first -> end.
  const std::map<std::int64_t, std::int64_t>& runs() const { return runs_; }

 private:
  std::map<std::int64_t, std::int64_t> runs_;
};

struct CommittedCheckpoint {
  std::filesystem::path directory;
  std::vector<std::filesystem::path> pruned;
  // Old checkpoints and remains that could not be removed, and why; the new checkpoint is complete.
  std::vector<std::string> prune_problems;
};

// Not thread-safe: one writer per rank, used by that rank's thread.
class CheckpointWriter {
 public:
  // Rank 0: removes the remains of a crash, and creates the files at full size (so that a full disk shows here, before any rank
  // has written). Tensor names are unique over all files. ConfigError if a checkpoint of this step exists already.
  static CheckpointWriter begin(const std::filesystem::path& run_dir, std::int64_t step, const std::vector<FileSpec>& files);

  // Any other rank, after begin() has returned on rank 0.
  static CheckpointWriter open(const std::filesystem::path& run_dir, std::int64_t step, int rank);

  CheckpointWriter(CheckpointWriter&&) noexcept = default;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;
  // Rank 0's writer removes the temporary directory if there was no commit, so that a failed checkpoint does not keep a full
  // disk full.
  ~CheckpointWriter();

  // Writes elements [first, first + count) of `tensor`, row-major, from host memory, in the tensor's dtype. Every element of
  // every tensor has to be written by exactly one rank, exactly once.
  void write(std::string_view tensor, std::int64_t first, std::int64_t count, const void* data);

  // Every rank, after its last write: makes its writes durable and leaves a note of them for commit().
  void finish();

  // Rank 0, after every rank has finished: checks that every element was written, computes checksums from the files' contents,
  // writes state.json, makes everything durable, renames it into place and removes all but the newest `keep` (>= 1)
  // checkpoints. `state` is a JSON object; CheckpointReader::state() gives it back.
  CommittedCheckpoint commit(const nlohmann::ordered_json& state, std::int64_t keep);

 private:
  struct OpenFile {
    std::string name;
    File file;
    SafetensorsLayout layout;
  };
  // Removes the directory at the end of its life, unless released. Only rank 0's writer holds one.
  struct RemoveDirectory {
    void operator()(std::filesystem::path* directory) const noexcept;
  };

  CheckpointWriter(std::filesystem::path run_dir, std::int64_t step, int rank);
  void add_file(OpenFile file);
  std::vector<std::filesystem::path> notes() const;  // the notes left by each rank's finish()
  void check_coverage() const;
  void write_manifest(const nlohmann::ordered_json& state);

  std::filesystem::path run_dir_;
  std::filesystem::path directory_;  // the temporary one
  std::int64_t step_ = 0;
  int rank_ = 0;
  bool finished_ = false;
  std::vector<OpenFile> files_;
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> tensors_;  // name -> index of file, of tensor in it
  std::map<std::string, Coverage, std::less<>> written_;
  std::vector<std::string> problems_;  // begin()'s failures to remove
  std::unique_ptr<std::filesystem::path, RemoveDirectory> cleanup_;
};

}  // namespace plait::checkpoint
