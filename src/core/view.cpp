#include "core/view.h"

#include "core/error.h"

namespace plait {

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  require(dims.size() <= max_rank, "Shape: more than four dims");
  for (const std::int64_t d : dims) {
    require(d >= 0, "Shape: negative dim");
    dims_[static_cast<std::size_t>(rank_++)] = d;
  }
}

std::int64_t Shape::elements() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= (*this)[i];
  return n;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

View View::reshaped(Shape dims) const {
  require(dims.elements() == shape.elements(), "View::reshaped: " + shape.to_string() + " to " + dims.to_string());
  return View(data, dtype, dims);
}

View View::rows(std::int64_t first, std::int64_t count) const {
  require(shape.rank() >= 1 && first >= 0 && count >= 0 && first + count <= shape[0], "View::rows: out of range");
  const std::int64_t per_row = shape[0] == 0 ? 0 : shape.elements() / shape[0];
  View part = *this;
  part.data = static_cast<char*>(data) + static_cast<std::size_t>(first * per_row) * size_of(dtype);
  switch (shape.rank()) {
    case 1: part.shape = {count}; break;
    case 2: part.shape = {count, shape[1]}; break;
    case 3: part.shape = {count, shape[1], shape[2]}; break;
    default: part.shape = {count, shape[1], shape[2], shape[3]}; break;
  }
  return part;
}

void View::expect(DType type) const {
  if (type != dtype) {
    throw InternalError("View::as: holds " + std::string(plait::to_string(dtype)) + ", asked for " +
                        std::string(plait::to_string(type)));
  }
}

}  // namespace plait
