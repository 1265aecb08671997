// The weights of a model of transformers as a WeightsReader: plait's parameters as fp32, from wherever they are in its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/huggingface/model_family.h"
#include "checkpoint/huggingface/weights.h"
#include "checkpoint/weights_reader.h"

namespace plait::checkpoint::huggingface {

// Whether a directory holds a config.json and is neither a run nor a checkpoint of plait's.
bool is_model_directory(const std::filesystem::path& directory);

// A read takes from the files the bytes of the elements asked for, and no others. Of a tensor that is stored transposed (gpt2's
// matrices) a block is as many pieces of the file as it has columns, one where it has all rows; since an operating system reads
// whole pages, up to two of them more than the piece itself may come from the disk. Takes some MiB of memory, whatever the
// block.
class ForeignWeights final : public WeightsReader {
 public:
  // Reads config.json and the files' headers, and checks that the tensors are those of the model: ConfigError as read_model(),
  // ForeignTensors and check_tensors() have it.
  explicit ForeignWeights(const std::filesystem::path& directory);

  const ForeignModel& model() const { return model_; }
  const model::ModelShape& shape() const { return shape_; }
  const StoredForm& form() const { return form_; }
  // Of the bytes of tensors.
  std::uint64_t bytes_read() const { return tensors_.bytes_read(); }

  std::int64_t step() const override { return 0; }
  // Of what config.json says, and of each file's name, size, time of last change and header: nobody has to read the tensors for
  // it.
  const std::string& digest() const override { return digest_; }
  // Files of transformers have no checksums. What is checked: that a head which is stored beside the table it is tied to is
  // equal to it.
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

}  // namespace plait::checkpoint::huggingface
