// The tensors of a training checkpoint: master weights and AdamW moments, by parameter name.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/weights_reader.h"
#include "model/parameters.h"

namespace plait::checkpoint {

// model.safetensors: every parameter in its stored shape; optimizer.safetensors: exp_avg and exp_avg_sq of each.
// `dtype` is the type of the master weights and moments: f32 or f64.
std::vector<FileSpec> training_tensors(const std::vector<model::Parameter>& parameters, DType dtype);

std::string exp_avg_name(const model::Parameter& parameter);     // "blocks.0.attention.qkv.weight.exp_avg"
std::string exp_avg_sq_name(const model::Parameter& parameter);  // "blocks.0.attention.qkv.weight.exp_avg_sq"

enum class Restored { everything, weights };

// ConfigError, listing every difference, unless the weights are those of a model of this shape, to the extent of `what`.
void expect_training_tensors(const WeightsReader& weights, const model::ModelShape& shape, DType dtype, Restored what);

}  // namespace plait::checkpoint
