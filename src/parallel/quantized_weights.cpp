#include "parallel/quantized_weights.h"

#include <algorithm>

#include "parallel/memory_plan.h"

namespace plait::parallel {

QuantizedWeights quantized_weights(const std::vector<model::Parameter>& parameters, const FlatLayout& flat) {
  QuantizedWeights all;
  const auto carve = [&](const Shape& shape) {
    const std::size_t first = all.bytes;
    all.bytes += MemoryPlan::aligned(static_cast<std::size_t>(shape.elements()));
    return first;
  };
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].product) order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](std::size_t i) { return flat.parameter(i).first; });
  for (const std::size_t i : order) {
    const std::size_t values = carve(parameters[i].shape), transposed = carve(parameters[i].shape);
    all.list.push_back({i, values, transposed, std::ssize(all.list)});
  }
  return all;
}

}  // namespace plait::parallel
