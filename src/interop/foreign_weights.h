// Reads the weights of a model of transformers as a WeightsReader: plait's parameters as fp32, from any of its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/weights_reader.h"
#include "interop/model_family.h"
#include "interop/weights.h"

namespace plait::interop {

// True if a directory holds a config.json and is neither a run nor a checkpoint of plait's.
bool is_model_directory(const std::filesystem::path& directory);

// A read touches only the file's bytes for the wanted elements. In a tensor that is stored transposed (gpt2's matrices) a block
// is as many pieces of the file as it has columns, or one piece if it has all rows; since an operating system reads whole
// pages, up to two more pages than the piece itself may come from the disk. Uses some MiB of memory for any block.
class ForeignWeights final : public checkpoint::WeightsReader {
 public:
  // Reads config.json and the files' headers, and checks that the tensors are those of the model: ConfigError as for
  // read_model(), ForeignTensors and check_tensors().
  explicit ForeignWeights(const std::filesystem::path& directory);

  const ForeignModel& model() const { return model_; }
  const model::ModelShape& shape() const { return shape_; }
  const StoredForm& form() const { return form_; }
  // Bytes of tensors read.
  std::uint64_t bytes_read() const { return tensors_.bytes_read(); }

  std::int64_t step() const override { return 0; }
  // A digest of config.json's contents, and of each file's name, size, modification time and header: it does not require
  // reading the tensors.
  const std::string& digest() const override { return digest_; }
  // Files of transformers have no checksums. Checks that a head stored in addition to the table it is tied to equals that
  // table.
  void verify() const override;
  void read(std::string_view parameter, const model::ElementBlock& block, void* data) const override;

 private:
  void read_piece(const Piece& piece, std::int64_t width, const model::ElementBlock& block, float* out) const;
  void read_transposed(const Piece& piece, const model::ElementBlock& block, float* out) const;

  ForeignModel model_;
  model::ModelShape shape_;
  ForeignTensors tensors_;
  StoredForm form_;
  std::string digest_;
  std::map<std::string, std::vector<Piece>, std::less<>> pieces_;  // of each parameter
};

// Like checkpoint::find_checkpoint(), for callers that only read weights: also accepts a lone checkpoint, or a model of
// transformers. `run_dir` is then the same directory.
checkpoint::FoundCheckpoint find_weights(const std::filesystem::path& path);

// Opens a directory that find_weights() returned.
std::unique_ptr<checkpoint::WeightsReader> open_weights(const std::filesystem::path& directory);

}  // namespace plait::interop
