// The tensors of a model in the form of transformers, in one safetensors file or in more with an index.
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
#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/task_progress.h"
#include "interop/model_family.h"

namespace plait::interop {

// Transposes in tiles that stay in the cache: [rows, columns] from [columns, rows]. Rows of `to` begin `stride` elements apart,
// at least `columns`.
void transpose(std::span<const float> from, std::int64_t rows, std::int64_t columns, float* to, std::int64_t stride);

// Opens model.safetensors of a directory, or else the files that model.safetensors.index.json names. Nothing in them is
// trusted: ConfigError naming the file for any violation of the formats, for an index that names a file elsewhere, and for
// tensors that are missing, not in the index, or in two files.
class ForeignTensors {
 public:
  explicit ForeignTensors(const std::filesystem::path& directory);
  bool contains(const std::string& tensor) const { return file_of(tensor).has_value(); }
  std::vector<std::string> names() const;
  // The type in the file (BOOL, I64) of a tensor whose element type plait does not have; nullopt for other tensors and for
  // unknown names.
  std::optional<std::string> unusable_type(const std::string& name) const;
  // "FILE: TENSOR", for messages; the directory for an unknown tensor.
  std::string place_of(const std::string& tensor) const;
  // The tensor of that name. ConfigError if there is none, or if it has an unusable_type().
  const checkpoint::TensorSpec& tensor(const std::string& name) const;
  // Elements [first, first + out.size()), as fp32. ConfigError unless the tensor is F32, F16 or BF16.
  void read(const std::string& name, std::int64_t first, std::span<float> out) const;
  // Bytes that read() has read since construction.
  std::uint64_t bytes_read() const { return bytes_read_; }
  // A line for each file: its name, size, time of last change and the checksum of its header.
  const std::string& identity() const { return identity_; }

 private:
  void add_file(const std::string& name);
  std::optional<std::size_t> file_of(const std::string& tensor) const;
  std::filesystem::path directory_;
  std::string identity_;
  std::vector<File> files_;
  std::map<std::string, std::pair<std::size_t, checkpoint::PlacedTensor>> tensors_;
  std::map<std::string, std::pair<std::size_t, std::string>> others_;  // their types
  mutable std::atomic<std::uint64_t> bytes_read_ = 0;
};

// The output projection, of every family, and plait's name for the table that it may be tied to.
inline const std::string head_tensor = "lm_head.weight", table_parameter = "embedding.tokens.weight";

// The weight type of this name: f32, f16 or bf16; nullopt for any other name.
std::optional<DType> weight_type_named(std::string_view name);

// The form in which the weights were stored, in order to store them so again.
struct StoredForm {
  std::string prefix;                        // see map_parameters()
  DType dtype = DType::f32;                  // of the first tensor; f32, f16 or bf16
  std::map<std::string, DType> others = {};  // of the tensors with another one
  DType type_of(const std::string& tensor) const;
};

// map_parameters() for the tensors that are there: a table that the head is tied to may be stored only under the head's name.
std::vector<MappedParameter> map_stored(const ForeignTensors& tensors, const std::string& family,
                                        const model::ModelShape& shape, const std::string& prefix);

// ConfigError, with every tensor that is missing, has another shape or belongs to no parameter.
StoredForm check_tensors(const ForeignTensors& tensors, const ForeignModel& model, const model::ModelShape& shape);

// Writes model.safetensors, or model-00001-of-0000N.safetensors with an index if all tensors take more than `most_bytes` (each
// file has one tensor at least), into an existing directory. Weights that are stored as fp64 are rounded too. `progress` is
// told each tensor before it is written. ConfigError naming the tensor and the remedy for a number that is too large for f16.
void write_tensors(const checkpoint::CheckpointReader& checkpoint, const std::string& family, const model::ModelShape& shape,
                   const StoredForm& form, std::uint64_t most_bytes, const std::filesystem::path& directory,
                   const ProgressCallback& progress);

}  // namespace plait::interop
