// A non-owning, contiguous, row-major tensor: pointer, element type and up to four dims.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"

namespace plait {

class Shape {
 public:
  static constexpr int max_rank = 4;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const;
  std::string to_string() const;  // "[32, 1024, 768]"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, max_rank> dims_{};
  int rank_ = 0;
};

// Copies of a View alias the same memory. An empty View (data == nullptr) means "not given" where an op allows that.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  View() = default;
  View(void* memory, DType type, Shape dims) : data(memory), dtype(type), shape(dims) {}

  explicit operator bool() const { return data != nullptr; }
  std::int64_t elements() const { return shape.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
  // Elements as T. InternalError unless dtype_of<T> == dtype.
  template <typename T>
  T* as() const {
    expect(dtype_of<T>);
    return static_cast<T*>(data);
  }
  // This memory with another shape of as many elements.
  View reshaped(Shape dims) const;
  // Rows [first, first + count) of the first dim.
  View rows(std::int64_t first, std::int64_t count) const;

 private:
  void expect(DType type) const;
};

}  // namespace plait
