// The FP8 operands of a rank's weights: which parameters have them, and where they lie.
#pragma once

#include <cstddef>
#include <vector>

#include "model/parameters.h"
#include "parallel/flat_layout.h"

namespace plait::parallel {

// Of parameter `parameter` of the rank's list: bytes from the start of StateTensor::quantized_weights, and which scale of
// StateTensor::weight_scales.
struct QuantizedWeight {
  std::size_t parameter = 0;
  std::size_t values = 0, transposed = 0;
  std::int64_t scale = 0;
};

struct QuantizedWeights {
  std::vector<QuantizedWeight> list;  // none without FP8
  std::size_t bytes = 0;
};

// Of all parameters that are model::Parameter::product, each in both forms (ops::Quantized); in the order of the flat buffers,
// so that a bucket's are neighbours.
QuantizedWeights quantized_weights(const std::vector<model::Parameter>& parameters, const FlatLayout& flat);

}  // namespace plait::parallel
