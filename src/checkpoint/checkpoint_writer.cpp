#include "checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checksum.h"
#include "checkpoint/manifest.h"
#include "core/error.h"

namespace plait::checkpoint {

bool Coverage::add(std::int64_t first, std::int64_t count) {
  if (count == 0) return true;
  std::int64_t end = first + count;
  auto next = runs_.upper_bound(first);
  if (next != runs_.end() && next->first < end) return false;
  if (next != runs_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second > first) return false;
    if (previous->second == first) {
      first = previous->first;
      runs_.erase(previous);
    }
  }
  if (next != runs_.end() && next->first == end) {
    end = next->second;
    runs_.erase(next);
  }
  runs_.emplace(first, end);
  return true;
}

std::optional<Coverage::Run> Coverage::missing(std::int64_t elements) const {
  std::int64_t covered = 0;
  for (const auto& [first, end] : runs_) {
    if (first > covered) return Run{covered, first};
    covered = end;
  }
  if (covered < elements) return Run{covered, elements};
  return std::nullopt;
}

namespace {

constexpr std::string_view note_prefix = "written-by-rank-";  // finish()'s note for commit()
constexpr std::uint64_t max_note_bytes = std::uint64_t{1} << 30;

std::string note_name(int rank) { return std::string(note_prefix) + std::to_string(rank) + ".json"; }

void create_with(const std::filesystem::path& path, const std::string& text) {
  File file = File::create(path);
  file.write_at(0, text.data(), text.size());
  file.sync();
  file.close();
}

}  // namespace

void CheckpointWriter::RemoveDirectory::operator()(std::filesystem::path* directory) const noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(*directory, ignored);
  delete directory;
}

CheckpointWriter::CheckpointWriter(std::filesystem::path run_dir, std::int64_t step, int rank)
    : run_dir_(std::move(run_dir)), directory_(temporary_directory(run_dir_, step)), step_(step), rank_(rank) {
  require(step >= 0 && rank >= 0, "a checkpoint has a step and a rank that are not negative");
}

CheckpointWriter::~CheckpointWriter() = default;

CheckpointWriter CheckpointWriter::begin(const std::filesystem::path& run_dir, std::int64_t step,
                                         const std::vector<FileSpec>& files) {
  CheckpointWriter writer(run_dir, step, 0);
  const std::filesystem::path target = checkpoint_directory(run_dir, step);
  std::error_code ignored;
  if (std::filesystem::exists(target, ignored)) {
    throw ConfigError("checkpoint " + target.string() + " exists already; move it away, or resume from it");
  }
  if (!std::filesystem::is_directory(status_at(run_dir))) {
    throw Error("cannot write a checkpoint: the run's directory " + run_dir.string() +
                " is gone, and with it everything needed to continue");
  }
  create_private_directories(checkpoints_directory(run_dir));
  sync_directory(run_dir);
  writer.problems_ = remove_leftovers(run_dir, step);
  create_private_directory(writer.directory_);
  writer.cleanup_.reset(new std::filesystem::path(writer.directory_));
  for (const FileSpec& spec : files) {
    OpenFile open{spec.name, File::create(writer.directory_ / spec.name), layout_safetensors(spec.tensors)};
    open.file.allocate(open.layout.file_bytes);
    open.file.write_at(0, open.layout.header.data(), open.layout.header.size());
    writer.add_file(std::move(open));
  }
  return writer;
}

CheckpointWriter CheckpointWriter::open(const std::filesystem::path& run_dir, std::int64_t step, int rank) {
  require(rank > 0, "rank 0 begins a checkpoint, other ranks open it");
  CheckpointWriter writer(run_dir, step, rank);
  for (const auto& path : list_directory(writer.directory_)) {
    if (path.extension() != ".safetensors") continue;
    File file = File::open_write(path);
    SafetensorsLayout layout = read_safetensors_layout(file);
    writer.add_file({path.filename().string(), std::move(file), std::move(layout)});
  }
  return writer;
}

void CheckpointWriter::add_file(OpenFile file) {
  for (std::size_t i = 0; i < file.layout.tensors.size(); ++i) {
    const std::string& name = file.layout.tensors[i].spec.name;
    require(tensors_.emplace(name, std::pair(files_.size(), i)).second, "tensor '" + name + "' is in two files");
  }
  files_.push_back(std::move(file));
}

void CheckpointWriter::write(std::string_view tensor, std::int64_t first, std::int64_t count, const void* data) {
  require(!finished_, "a rank writes before it finishes");
  const auto found = tensors_.find(tensor);
  require(found != tensors_.end(), "the checkpoint has no tensor '" + std::string(tensor) + "'");
  const OpenFile& open = files_[found->second.first];
  const PlacedTensor& placed = open.layout.tensors[found->second.second];
  const std::int64_t elements = placed.spec.elements();
  require(first >= 0 && count >= 0 && first <= elements && count <= elements - first,
          "elements outside tensor '" + placed.spec.name + "'");
  require(written_[placed.spec.name].add(first, count),
          "rank " + std::to_string(rank_) + " writes elements of tensor '" + placed.spec.name + "' twice");
  const std::size_t width = size_of(placed.spec.dtype);
  open.file.write_at(placed.offset + static_cast<std::uint64_t>(first) * width, data, static_cast<std::size_t>(count) * width);
}

void CheckpointWriter::finish() {
  require(!finished_, "a rank finishes once");
  for (OpenFile& open : files_) {
    open.file.sync();
    open.file.close();
  }
  nlohmann::json note = nlohmann::json::object();
  for (const auto& [tensor, coverage] : written_) {
    nlohmann::json& runs = note[tensor] = nlohmann::json::array();
    for (const auto& [first, end] : coverage.runs()) runs.push_back({first, end});
  }
  create_with(directory_ / note_name(rank_), note.dump());
  finished_ = true;
}

std::vector<std::filesystem::path> CheckpointWriter::notes() const {
  std::vector<std::filesystem::path> found;
  for (const auto& path : list_directory(directory_)) {
    if (path.filename().string().starts_with(note_prefix)) found.push_back(path);
  }
  return found;
}

void CheckpointWriter::check_coverage() const {
  std::map<std::string, Coverage, std::less<>> covered;
  for (const auto& path : notes()) {
    const std::string name = path.filename().string();
    const auto note = nlohmann::json::parse(read_text(path, max_note_bytes), nullptr, /*allow_exceptions=*/false);
    require(note.is_object(), path.string() + " is damaged");
    for (const auto& [tensor, runs] : note.items()) {
      for (const auto& run : runs) {
        const auto first = run.at(0).get<std::int64_t>();
        const auto end = run.at(1).get<std::int64_t>();
        require(covered[tensor].add(first, end - first),
                "checkpoint of step " + std::to_string(step_) + ": elements [" + std::to_string(first) + ", " +
                    std::to_string(end) + ") of tensor '" + tensor + "' were written by two ranks (" + name + ")");
      }
    }
  }
  for (const OpenFile& open : files_) {
    for (const PlacedTensor& tensor : open.layout.tensors) {
      const auto missing = covered[tensor.spec.name].missing(tensor.spec.elements());
      if (!missing) continue;
      throw InternalError("checkpoint of step " + std::to_string(step_) + ": elements [" + std::to_string(missing->first) +
                          ", " + std::to_string(missing->second) + ") of tensor '" + tensor.spec.name +
                          "' were written by no rank");
    }
  }
}

void CheckpointWriter::write_manifest(const nlohmann::ordered_json& state) {
  Manifest manifest;
  manifest.step = step_;
  manifest.state = state;
  for (const OpenFile& open : files_) {
    // Opened anew: a network file system shows what other hosts wrote and closed only to a later open.
    const File file = File::open_read(directory_ / open.name);
    require(file.size() == open.layout.file_bytes, "the size of " + file.path().string() + " changed while it was written");
    ManifestFile entry;
    entry.name = open.name;
    entry.bytes = open.layout.file_bytes;
    entry.header_xxh3 = xxh3(open.layout.header);
    std::vector<FileRange> ranges;
    for (const PlacedTensor& tensor : open.layout.tensors)
      ranges.push_back({&file, tensor.offset, static_cast<std::uint64_t>(tensor.spec.bytes())});
    const std::vector<std::uint64_t> hashes = xxh3(ranges);
    for (std::size_t i = 0; i < hashes.size(); ++i) entry.tensors.emplace(open.layout.tensors[i].spec.name, hashes[i]);
    manifest.files.push_back(std::move(entry));
  }
  create_with(directory_ / Manifest::file_name, to_text(manifest));
}

CommittedCheckpoint CheckpointWriter::commit(const nlohmann::ordered_json& state, std::int64_t keep) {
  require(rank_ == 0 && finished_ && cleanup_, "rank 0 commits, once, after every rank has finished");
  require(keep >= 1, "checkpoint.keep has to be at least 1");
  require(state.is_object(), "the state of a checkpoint is a JSON object");
  check_coverage();
  write_manifest(state);
  for (const auto& note : notes()) remove_file(note);
  sync_directory(directory_);

  const std::filesystem::path target = checkpoint_directory(run_dir_, step_);
  rename_path(directory_, target);
  delete cleanup_.release();
  sync_directory(checkpoints_directory(run_dir_));
  Pruned pruned = prune_checkpoints(run_dir_, keep);
  std::ranges::move(pruned.problems, std::back_inserter(problems_));
  return {target, std::move(pruned.removed), std::move(problems_)};
}

}  // namespace plait::checkpoint
