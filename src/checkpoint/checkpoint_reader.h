// Reads a checkpoint directory. Nothing found there is trusted: every length and offset is checked against the files' sizes
// before it is used, and every failure is a ConfigError that names the file and the fault.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights_reader.h"
#include "core/file.h"
#include "core/json.h"

namespace plait::checkpoint {

class CheckpointReader final : public WeightsReader {
 public:
  // Opens the files and checks everything but the tensors' checksums: state.json's own checksum and version, sizes, headers.
  explicit CheckpointReader(const std::filesystem::path& directory);

  // Recomputes every tensor's checksum; reads all bytes once.
  void verify() const override;

  std::int64_t step() const override { return manifest_.step; }
  // An object, as given to CheckpointWriter::commit; but its members may be of any type, as anyone may have written the file.
  const nlohmann::ordered_json& state() const { return manifest_.state; }
  // To read its members by: JsonField(reader.state(), source, "state").
  JsonSource state_source() const;
  // state.json's own checksum, 16 hexadecimal digits. It covers the checksum of every tensor: two checkpoints that have it in
  // common hold the same.
  const std::string& digest() const override { return digest_; }

  // Elements [first, first + count) of a tensor, row-major, in its dtype, into host memory.
  void read(std::string_view tensor, std::int64_t first, std::int64_t count, void* data) const;
  void read(std::string_view tensor, const model::ElementBlock& block, void* data) const override;

 private:
  struct OpenFile {
    std::string name;
    File file;
    SafetensorsLayout layout;
  };
  void open_file(const ManifestFile& entry);

  std::string digest_;
  Manifest manifest_;
  std::vector<OpenFile> files_;
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> places_;  // file, and tensor of its layout
};

}  // namespace plait::checkpoint
