// The parameters of a model by name: shapes, initial values, and the views that segments work on.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/axis.h"
#include "core/view.h"
#include "model/model_shape.h"
#include "ops/quantize.h"

namespace plait::model {

// Views of one segment's parameters (or of their gradients, which have the same shapes). Unused ones are empty.
struct SegmentParameters {
  View norm_weight, norm_bias;                            // of all but the embedding
  View tokens, positions;                                 // embedding
  View qkv_weight, qkv_bias, output_weight, output_bias;  // attention
  View query_gain, key_gain;                              // attention, of the norms of query and key heads
  View up_weight, up_bias, down_weight, down_bias;        // mlp
  View head_weight;                                       // head; `tokens` where that is tied
};

// The matrices of one segment as FP8 operands; empty ones where products are in the type of the weights.
struct QuantizedParameters {
  ops::Quantized qkv, output;  // attention
  ops::Quantized up, down;     // mlp
};

enum class Init { zero, one, normal };

// Where a rank's part of a tensor lies in the whole tensor. Both are row-major matrices (vectors have one column).
struct TensorPart {
  struct Rows {
    std::int64_t first = 0, whole_first = 0, count = 0;  // rows [first, first + count) here are [whole_first, ...) there
  };
  std::vector<Rows> rows;  // ascending in first, without gaps
  std::int64_t columns = 1, column_first = 0, whole_columns = 1;
};

struct Parameter {
  std::string name;  // "blocks.3.attention.qkv.weight"
  Shape shape;       // as computed with, on this rank; matrices are [out, in]
  // Leading elements that are in use: the last rows of a padded vocabulary are not stored or initialised.
  std::int64_t stored = 0;
  Shape stored_shape;                                       // shape of the whole tensor, as written to checkpoints
  TensorPart part;                                          // where `shape` lies in it
  int segment = 0;                                          // segment whose backward completes its gradient on this rank
  View SegmentParameters::* view = nullptr;                 // which of that segment's it is
  ops::Quantized QuantizedParameters::* operand = nullptr;  // of a matrix of attention or MLP, which precision.matmul is about
  Init init = Init::zero;
  float std = 0;         // of Init::normal
  bool decay = false;    // weight decay applies: matrices only, neither biases, norms nor the position table
  bool replica = false;  // another rank of the tensor group or the pipeline holds the same elements, keeps them equal, and
                         // stands for them where each element counts once (gradient norm, checkpoints)
  bool norm = false;     // of a norm: norm_backward computes its gradient; all others come from backward_weight
  // Axes that do not divide it: ranks along them hold the same elements, and optimizer state may be cut among them (ZeRO).
  AxisSet replicas = replica_axes;
  // Axes along which ranks hold the same elements and each sees a part of what makes their gradient: the sum over them
  // completes it. Of all parameters their replicas; of norms and of the biases of products back into the residual stream the
  // tensor axis under sequence parallelism, as each rank sees its own rows; of the gains of query and key heads the tensor axis
  // always, as each rank sees its own heads; of a tied table that is embedding here and head there the pipeline axis.
  AxisSet partial = replicas;
};

// The parameters of `segments` (ascending) on one tensor-parallel rank, in forward order. A tied embedding appears once: in
// segment 0, or in the head where segment 0 is elsewhere.
std::vector<Parameter> parameters(const ModelShape& shape, const TensorSplit& split, const std::vector<int>& segments);
// All of them, whole.
std::vector<Parameter> parameters(const ModelShape& shape);

// Elements [first, first + count) of a rank's part, as rectangles of the whole tensor, in order. Those of one are consecutive
// here, row by row.
struct ElementBlock {
  std::int64_t first = 0;                                   // here
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;  // there: rows [row, row + rows), columns [column, column + columns)
  std::int64_t elements() const { return rows * columns; }
};
std::vector<ElementBlock> whole_blocks(const TensorPart& part, std::int64_t first, std::int64_t count);

// Elements [first, first + count) of a rank's part, as runs of consecutive elements of the whole tensor, in order.
struct ElementRun {
  std::int64_t first = 0, whole_first = 0, count = 0;
};
std::vector<ElementRun> whole_runs(const TensorPart& part, std::int64_t first, std::int64_t count);

// values[i] = initial value of element first + i of this rank's part. Depends on (seed, name, element of the whole tensor)
// only, never on which rank asks (core/philox.h).
void initial_values(const Parameter& parameter, std::uint64_t seed, std::int64_t first, std::span<float> values);

// One entry per segment of the model, from a View for each parameter of `list`; segments that are not in it stay empty.
std::vector<SegmentParameters> bind_parameters(const ModelShape& shape, const std::vector<Parameter>& list,
                                               std::span<const View> views);
// The same of the parameters that are operands; `quantized`: one for each parameter of the list, empty for the others.
std::vector<QuantizedParameters> bind_quantized(const ModelShape& shape, const std::vector<Parameter>& list,
                                                std::span<const ops::Quantized> quantized);

}  // namespace plait::model
