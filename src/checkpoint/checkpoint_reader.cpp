#include "checkpoint/checkpoint_reader.h"

#include <utility>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checksum.h"
#include "core/error.h"

namespace plait::checkpoint {
namespace {

constexpr std::uint64_t max_state_bytes = std::uint64_t{256} << 20;

}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& directory) : WeightsReader(directory) {
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

JsonSource CheckpointReader::state_source() const {
  return {.name = (directory() / Manifest::file_name).string(), .null_is_missing = false};
}

void CheckpointReader::open_file(const ManifestFile& entry) {
  const std::filesystem::path path = directory() / entry.name;
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
    if (!add(layout.tensors[i].spec)) throw ConfigError(path.string() + ": tensor '" + name + "' is in another file as well");
    places_.emplace(name, std::pair(files_.size(), i));
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

void CheckpointReader::read(std::string_view name, std::int64_t first, std::int64_t count, void* data) const {
  const TensorSpec& spec = tensor(name);
  const std::int64_t elements = spec.elements();
  require(first >= 0 && count >= 0 && first <= elements && count <= elements - first,
          "elements outside tensor '" + spec.name + "'");
  const auto& [file, place] = places_.find(name)->second;
  const std::size_t width = size_of(spec.dtype);
  files_[file].file.read_at(files_[file].layout.tensors[place].offset + static_cast<std::uint64_t>(first) * width, data,
                            static_cast<std::size_t>(count) * width);
}

void CheckpointReader::read(std::string_view name, const model::ElementBlock& block, void* data) const {
  const TensorSpec& spec = tensor(name);
  require_block(spec, block);
  const std::int64_t columns = spec.columns(), first = block.row * columns + block.column;
  if (block.columns == columns) return read(name, first, block.elements(), data);
  const std::size_t row_bytes = static_cast<std::size_t>(block.columns) * size_of(spec.dtype);
  for (std::int64_t row = 0; row < block.rows; ++row)
    read(name, first + row * columns, block.columns, static_cast<std::byte*>(data) + static_cast<std::size_t>(row) * row_bytes);
}

}  // namespace plait::checkpoint
