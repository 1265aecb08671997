// Meshes of the axes that tests name.
#pragma once

#include <cstdint>

#include "parallel/mesh.h"

namespace plait::parallel {

inline Layout make_layout(std::int64_t pipeline, std::int64_t data, std::int64_t tensor) {
  return make_layout(AxisSizes{{Axis::pipeline, pipeline}, {Axis::data, data}, {Axis::tensor, tensor}});
}

}  // namespace plait::parallel
