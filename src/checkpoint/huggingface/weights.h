// The tensors of a model in the form of transformers, in one safetensors file or in several with an index.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/huggingface/model_family.h"
#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/progress_callback.h"

namespace plait::checkpoint::huggingface {

// model.safetensors of a directory, or where there is none the files that model.safetensors.index.json names. Nothing in them
// is trusted: ConfigError naming the file for whatever is not as the formats say, for an index that names a file elsewhere, and
// for tensors that are missing, not in the index, or in two files.
class ForeignTensors {
 public:
  explicit ForeignTensors(const std::filesystem::path& directory);
  bool contains(const std::string& tensor) const { return file_of(tensor).has_value(); }
  std::vector<std::string> names() const;
  // The type in the file (BOOL, I64) of a tensor whose elements plait has no type for. Nothing for others, and if there is
  // none.
  std::optional<std::string> unusable_type(const std::string& name) const;
  // "FILE: TENSOR", for messages; of a tensor that there is not the directory.
  std::string place_of(const std::string& tensor) const;
  // With its name. ConfigError if there is none, or if it has an unusable_type().
  const TensorSpec& tensor(const std::string& name) const;
  // Elements [first, first + out.size()), as fp32. ConfigError unless the tensor is F32, F16 or BF16.
  void read(const std::string& name, std::int64_t first, std::span<float> out) const;
  // By read(), since this was made.
  std::uint64_t bytes_read() const { return bytes_read_; }
  // A line for each file: its name, size, time of last change and the checksum of its header.
  const std::string& identity() const { return identity_; }

 private:
  void add_file(const std::string& name);
  std::optional<std::size_t> file_of(const std::string& tensor) const;
  std::filesystem::path directory_;
  std::string identity_;
  std::vector<File> files_;
  std::map<std::string, std::pair<std::size_t, PlacedTensor>> tensors_;
  std::map<std::string, std::pair<std::size_t, std::string>> others_;  // their types
  mutable std::atomic<std::uint64_t> bytes_read_ = 0;
};

// The output projection, of every family, and plait's name for the table that it may be tied to.
inline const std::string head_tensor = "lm_head.weight", table_parameter = "embedding.tokens.weight";

// The element type of weights that is called so: f32, f16 or bf16. Nothing for any other name.
std::optional<DType> weight_type_named(std::string_view name);

// How the weights were stored, to be stored so again.
struct StoredForm {
  std::string prefix;                        // see map_parameters()
  DType dtype = DType::f32;                  // of the first tensor; f32, f16 or bf16
  std::map<std::string, DType> others = {};  // of the tensors that have another one
  DType type_of(const std::string& tensor) const;
};

// As map_parameters(), where the tensors are: a table that the head is tied to may be there under the head's name only.
std::vector<MappedParameter> map_stored(const ForeignTensors& tensors, const std::string& family,
                                        const model::ModelShape& shape, const std::string& prefix);

// ConfigError, with every tensor that is missing, is of another shape or belongs to no parameter.
StoredForm check_tensors(const ForeignTensors& tensors, const ForeignModel& model, const model::ModelShape& shape);

// Writes model.safetensors, or model-00001-of-0000N.safetensors with an index where all tensors take more than
// `most_bytes` (each file has one tensor at least), into an existing directory. Weights that are stored as fp64 are rounded
// too. `progress` is told each tensor before it is written. ConfigError naming the tensor and the remedy for a number that is
// too large for f16.
void write_tensors(const CheckpointReader& checkpoint, const std::string& family, const model::ModelShape& shape,
                   const StoredForm& form, std::uint64_t most_bytes, const std::filesystem::path& directory,
                   const ProgressCallback& progress);

}  // namespace plait::checkpoint::huggingface
