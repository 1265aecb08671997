// The parameters of a model by name: shapes, initial values, and the views that blocks work on.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/view.h"
#include "model/model_shape.h"

namespace plait::model {

enum class Init { zero, one, normal };

struct Parameter {
  std::string name;          // "blocks.3.attention.qkv.weight"
  Shape shape;               // as computed with; matrices are [out, in]
  std::int64_t stored = 0;   // elements that mean something: a padded vocabulary's last rows are not stored or initialised
  Shape stored_shape;        // shape of those, as written to checkpoints
  int block = 0;             // block whose backward-weight completes its gradient
  Init init = Init::zero;
  float std = 0;             // of Init::normal
  bool decay = false;        // weight decay applies: matrices only, neither biases, norms nor the position table
};

// All parameters, in forward order of their blocks. A tied embedding appears once, in block 0.
std::vector<Parameter> parameters(const ModelShape& shape);

// values[i] = initial value of element first + i. Depends on (seed, name, element) only, never on who asks (core/philox.h).
void initial_values(const Parameter& parameter, std::uint64_t seed, std::int64_t first, std::span<float> values);

// Views of one block's parameters (or of their gradients, which have the same shapes). Unused ones are empty.
struct BlockParameters {
  View tokens, positions;                          // embedding
  View norm1_weight, norm1_bias, qkv_weight, qkv_bias, output_weight, output_bias;    // attention half
  View norm2_weight, norm2_bias, up_weight, up_bias, down_weight, down_bias;          // MLP half
  View norm_weight, norm_bias, head_weight;        // head; head_weight is `tokens` when tied
};

// One entry per block, from a View for each of parameters(shape), in that order.
std::vector<BlockParameters> bind_parameters(const ModelShape& shape, const std::vector<Parameter>& list,
                                             std::span<const View> views);

}  // namespace plait::model
