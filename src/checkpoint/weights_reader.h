// Reads a model's weights by plait's parameter names, in any part, from a checkpoint (checkpoint_reader.h) or from files of
// transformers (interop/foreign_weights.h). Code that loads weights does not know which.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/parameters.h"

namespace plait::checkpoint {

// read() and verify() may be called from concurrent threads.
class WeightsReader {
 public:
  virtual ~WeightsReader() = default;
  WeightsReader(const WeightsReader&) = delete;
  WeightsReader& operator=(const WeightsReader&) = delete;

  const std::filesystem::path& directory() const { return directory_; }
  // The step of the weights.
  virtual std::int64_t step() const = 0;
  // 16 hexadecimal digits. Different weights have different digests; equal ones need not have equal digests.
  virtual const std::string& digest() const = 0;
  // Makes the checks that opening skips because they require reading tensors. ConfigError that names the file and the tensor.
  virtual void verify() const = 0;

  bool contains(std::string_view tensor) const { return specs_.find(tensor) != specs_.end(); }
  const TensorSpec& tensor(std::string_view name) const;  // ConfigError if there is none

  // Checks that there are exactly these tensors with these shapes and dtypes (names of files do not matter), plus any of
  // `others`; the ConfigError lists the first differences and counts the rest.
  void expect(const std::vector<FileSpec>& files, const std::vector<FileSpec>& others = {}) const;

  // Reads a rectangle of a tensor that is a matrix (a vector has one column), row by row and in its dtype, into host memory.
  // Nothing else of the tensor is read. `block.first` has no meaning here.
  virtual void read(std::string_view tensor, const model::ElementBlock& block, void* data) const = 0;

 protected:
  explicit WeightsReader(std::filesystem::path directory) : directory_(std::move(directory)) {}
  bool add(const TensorSpec& spec) { return specs_.emplace(spec.name, spec).second; }  // false: the name exists already
  // InternalError unless the tensor contains that block.
  static void require_block(const TensorSpec& spec, const model::ElementBlock& block);

 private:
  std::filesystem::path directory_;
  std::map<std::string, TensorSpec, std::less<>> specs_;
};

// Distinguishes the files of a directory of weights from copies of them, without reading any: 16 hexadecimal digits of their
// names, inodes, sizes, and times of last change of contents and inode. Equal on all hosts that share the file system, and
// never equal for a copy.
std::string files_identity(const std::filesystem::path& directory);

// A digest of all bytes of the tensor files there, which must be read for it: 16 hexadecimal digits. For files without
// checksums.
std::string contents_digest(const std::filesystem::path& directory);

// The tensors of a training checkpoint: master weights and AdamW moments, by parameter name.

// model.safetensors: every parameter in its stored shape; optimizer.safetensors: exp_avg and exp_avg_sq of each.
// `dtype` is the type of the master weights and moments: f32 or f64.
std::vector<FileSpec> training_tensors(const std::vector<model::Parameter>& parameters, DType dtype);

std::string exp_avg_name(const model::Parameter& parameter);     // "blocks.0.attention.qkv.weight.exp_avg"
std::string exp_avg_sq_name(const model::Parameter& parameter);  // "blocks.0.attention.qkv.weight.exp_avg_sq"

enum class Restored { everything, weights };

// ConfigError, listing every difference, unless the weights are those of a model of this shape, to the extent of `what`.
void expect_training_tensors(const WeightsReader& weights, const model::ModelShape& shape, DType dtype, Restored what);

}  // namespace plait::checkpoint
