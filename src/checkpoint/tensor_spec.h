// Specifications of a checkpoint's files and tensors. Tensors are named and global (not of any particular rank).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace plait::checkpoint {

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

}  // namespace plait::checkpoint
