#include "checkpoint/training_tensors.h"

namespace plait::checkpoint {

std::string exp_avg_name(const model::Parameter& parameter) { return parameter.name + ".exp_avg"; }
std::string exp_avg_sq_name(const model::Parameter& parameter) { return parameter.name + ".exp_avg_sq"; }

std::vector<FileSpec> training_tensors(const std::vector<model::Parameter>& parameters, DType dtype) {
  FileSpec weights{"model.safetensors", {}};
  FileSpec moments{"optimizer.safetensors", {}};
  for (const model::Parameter& parameter : parameters) {
    std::vector<std::int64_t> shape;
    for (int dim = 0; dim < parameter.stored_shape.rank(); ++dim) shape.push_back(parameter.stored_shape[dim]);
    weights.tensors.push_back({parameter.name, dtype, shape});
    moments.tensors.push_back({exp_avg_name(parameter), dtype, shape});
    moments.tensors.push_back({exp_avg_sq_name(parameter), dtype, shape});
  }
  return {weights, moments};
}

void expect_training_tensors(const WeightsReader& weights, const model::ModelShape& shape, DType dtype, Restored what) {
  std::vector<FileSpec> files = training_tensors(model::parameters(shape), dtype);
  if (what == Restored::everything) return weights.expect(files);
  weights.expect({files.front()}, {files.begin() + 1, files.end()});
}

}  // namespace plait::checkpoint
