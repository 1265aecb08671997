#include "checkpoint/checkpoint_reader.h"

#include <set>
#include <utility>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checksum.h"
#include "core/error.h"

namespace plait::checkpoint {
namespace {

constexpr std::uint64_t max_state_bytes = std::uint64_t{256} << 20;

std::string describe(const TensorSpec& spec) {
  std::string text(to_string(spec.dtype));
  text += " [";
  for (std::size_t i = 0; i < spec.shape.size(); ++i) text += (i ? ", " : "") + std::to_string(spec.shape[i]);
  return text + "]";
}

}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& directory) : directory_(directory) {
  const std::filesystem::path state_path = directory / Manifest::file_name;
  const std::string text = read_text(state_path, max_state_bytes);
  manifest_ = parse_manifest(text, state_path);
  digest_ = manifest_digest(text);
  const auto named = step_of(directory);
  if (named && *named != manifest_.step) {
    throw ConfigError(state_path.string() + ": holds step " + std::to_string(manifest_.step) +
                      ", not the one its directory is named after");
  }
  for (const ManifestFile& entry : manifest_.files) open_file(entry);
}

void CheckpointReader::refuse_state(const std::string& why) const {
  throw ConfigError((directory_ / Manifest::file_name).string() + ": in 'state', " + why);
}

void CheckpointReader::open_file(const ManifestFile& entry) {
  const std::filesystem::path path = directory_ / entry.name;
  File file = File::open_read(path);
  const std::uint64_t bytes = file.size();
  if (bytes != entry.bytes) {
    throw ConfigError(path.string() + ": " + std::to_string(bytes) + " bytes, " + std::to_string(entry.bytes) +
                      " were written: it was cut off or replaced");
  }
  SafetensorsLayout layout = read_safetensors_layout(file);
  if (xxh3(layout.header) != entry.header_xxh3) throw ConfigError(path.string() + ": the header is damaged: wrong checksum");
  if (layout.tensors.size() != entry.tensors.size()) {
    throw ConfigError(path.string() + ": " + std::to_string(layout.tensors.size()) + " tensors, state.json lists " +
                      std::to_string(entry.tensors.size()));
  }
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const std::string& name = layout.tensors[i].spec.name;
    if (!entry.tensors.contains(name)) throw ConfigError(path.string() + ": state.json does not list tensor '" + name + "'");
    if (!tensors_.emplace(name, std::pair(files_.size(), i)).second) {
      throw ConfigError(path.string() + ": tensor '" + name + "' is in another file as well");
    }
  }
  files_.push_back({entry.name, std::move(file), std::move(layout)});
}

void CheckpointReader::verify() const {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const OpenFile& open = files_[i];
    std::vector<FileRange> ranges;
    for (const PlacedTensor& tensor : open.layout.tensors)
      ranges.push_back({&open.file, tensor.offset, static_cast<std::uint64_t>(tensor.spec.bytes())});
    const std::vector<std::uint64_t> hashes = xxh3(ranges);
    for (std::size_t t = 0; t < hashes.size(); ++t) {
      const std::string& name = open.layout.tensors[t].spec.name;
      const std::uint64_t recorded = manifest_.files[i].tensors.find(name)->second;
      if (hashes[t] == recorded) continue;
      throw ConfigError(open.file.path().string() + ": tensor '" + name + "' is damaged: checksum " + to_hex(hashes[t]) +
                        ", recorded " + to_hex(recorded));
    }
  }
}

const TensorSpec& CheckpointReader::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw ConfigError(directory_.string() + ": there is no tensor '" + std::string(name) + "'");
  return files_[found->second.first].layout.tensors[found->second.second].spec;
}

void CheckpointReader::expect(const std::vector<FileSpec>& files, const std::vector<FileSpec>& others) const {
  std::vector<ConfigProblem> problems;
  const auto differs = [&](const std::string& tensor, const std::string& how) {
    problems.push_back({directory_.string() + ": tensor '" + tensor + "'", "", how, "", 0});
  };
  std::set<std::string_view> expected;
  for (const FileSpec& file : files) {
    for (const TensorSpec& spec : file.tensors) {
      expected.insert(spec.name);
      if (!contains(spec.name)) {
        differs(spec.name, "missing; the model needs " + describe(spec));
      } else if (!(tensor(spec.name) == spec)) {
        differs(spec.name, "is " + describe(tensor(spec.name)) + ", the model needs " + describe(spec));
      }
    }
  }
  for (const FileSpec& file : others) {
    for (const TensorSpec& spec : file.tensors) expected.insert(spec.name);
  }
  for (const auto& [name, place] : tensors_) {
    if (!expected.contains(name)) differs(name, "the model has no such tensor");
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

void CheckpointReader::read(std::string_view tensor, std::int64_t first, std::int64_t count, void* data) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) throw ConfigError(directory_.string() + ": there is no tensor '" + std::string(tensor) + "'");
  const OpenFile& open = files_[found->second.first];
  const PlacedTensor& placed = open.layout.tensors[found->second.second];
  const std::int64_t elements = placed.spec.elements();
  require(first >= 0 && count >= 0 && first <= elements && count <= elements - first,
          "elements outside tensor '" + placed.spec.name + "'");
  const std::size_t width = size_of(placed.spec.dtype);
  open.file.read_at(placed.offset + static_cast<std::uint64_t>(first) * width, data, static_cast<std::size_t>(count) * width);
}

}  // namespace plait::checkpoint
