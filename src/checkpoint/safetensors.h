// The safetensors container (https://github.com/huggingface/safetensors, "Format"): the header's length as a little-endian
// uint64, the header as JSON, then the tensors' bytes, contiguous, without holes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"

namespace plait::checkpoint {

// The tensors and files of a checkpoint. Tensors are named and global (not of any particular rank).
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // empty: a scalar

  std::int64_t elements() const;  // InternalError when a dim is negative or the product overflows
  // The tensor as a matrix: a vector has one column, and further dims are columns too.
  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  std::int64_t columns() const;
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(size_of(dtype)); }
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

struct FileSpec {
  std::string name;  // "model.safetensors"
  std::vector<TensorSpec> tensors;
};

struct PlacedTensor {
  TensorSpec spec;
  std::uint64_t offset = 0;  // of its first byte, from the start of the file
};

// A tensor of an element type that plait does not have: BOOL, I64, F8_E5M2 and so on.
struct OtherTensor {
  std::string name, type;  // as in the file
};

struct SafetensorsLayout {
  std::string header;                 // all bytes before the tensors, including the length; a multiple of 8 when written
  std::vector<PlacedTensor> tensors;  // ascending offsets
  std::vector<OtherTensor> others;    // when read: the file's other tensors
  std::uint64_t file_bytes = 0;
};

// Places the tensors: wider element types first, so that each is aligned to its element size, otherwise in the given order.
SafetensorsLayout layout_safetensors(const std::vector<TensorSpec>& tensors);

// Reads and checks the header of an untrusted file: no length is used for allocating or reading before it is known to lie
// within the file. ConfigError names the file, the tensor and the rule.
SafetensorsLayout read_safetensors_layout(const File& file);

}  // namespace plait::checkpoint
