// The parameters of a model by name: shapes, initial values, and views for each segment.
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
  View norm_weight, norm_bias;                            // all but the embedding
  View tokens, positions;                                 // embedding
  View qkv_weight, qkv_bias, output_weight, output_bias;  // attention
  View query_gain, key_gain;                              // attention, of the norms of query and key heads
  View up_weight, up_bias, down_weight, down_bias;        // mlp
  View head_weight;                                       // head; `tokens` if the embedding is tied
};

// The matrices of one segment as FP8 operands; empty if products are in the type of the weights.
struct QuantizedParameters {
  ops::Quantized qkv, output;  // attention
  ops::Quantized up, down;     // mlp
};

enum class Init { zero, one, normal };

// The place of a rank's part in the whole tensor. Both are row-major matrices (vectors have one column).
struct TensorPart {
  struct Rows {
    std::int64_t first = 0, whole_first = 0, count = 0;  // rows [first, first + count) here are [whole_first, ...) there
  };
  std::vector<Rows> rows;  // ascending in first, without gaps
  std::int64_t columns = 1, column_first = 0, whole_columns = 1;
};

struct Parameter {
  std::string name;  // "blocks.3.attention.qkv.weight"
  Shape shape;       // on this rank, as used in computation; matrices are [out, in]
  // Number of leading elements in use: the last rows of a padded vocabulary are not stored or initialised.
  std::int64_t stored = 0;
  Shape stored_shape;                                       // shape of the whole tensor, as written to checkpoints
  TensorPart part;                                          // the place of `shape` in `stored_shape`
  int segment = 0;                                          // segment whose backward completes its gradient on this rank
  View SegmentParameters::* view = nullptr;                 // its member of that segment's parameters
  ops::Quantized QuantizedParameters::* operand = nullptr;  // of matrices that precision.matmul applies to: attention, MLP
  Init init = Init::zero;
  float std = 0;         // of Init::normal
  bool decay = false;    // weight decay applies: matrices only, neither biases, norms nor the position table
  bool replica = false;  // another rank of the tensor group or the pipeline holds the same elements, keeps them equal, and
                         // counts for both wherever each element counts once (gradient norm, checkpoints)
  bool norm = false;     // of a norm: norm_backward computes its gradient; backward_weight computes all others
  // Axes that do not divide it: their ranks hold the same elements, and may share its optimizer state (ZeRO).
  AxisSet replicas = replica_axes;
  // Axes whose ranks hold the same elements but each compute only a part of the gradient: the sum over them completes it. They
  // include the replicas of every parameter. Norms, and biases of products back into the residual stream, add the tensor axis
  // under sequence parallelism, as each rank sees its own rows. Gains of query and key heads always add the tensor axis, as
  // each rank sees its own heads. A tied table with embedding and head on different ranks adds the pipeline axis.
  AxisSet partial = replicas;
};

// The parameters of `segments` (ascending) on one tensor-parallel rank, in forward order. A tied embedding appears once: in
// segment 0, or in the head if segment 0 is not among them.
std::vector<Parameter> parameters(const ModelShape& shape, const TensorSplit& split, const std::vector<int>& segments);
// The parameters of the whole model, undivided.
std::vector<Parameter> parameters(const ModelShape& shape);

// Elements [first, first + count) of a rank's part, as rectangles of the whole tensor, in order. The elements of a rectangle
// are consecutive in the part, row by row.
struct ElementBlock {
  std::int64_t first = 0;                                   // in the part
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;  // in the whole: [row, row + rows) × [column, column + columns)
  std::int64_t elements() const { return rows * columns; }
};
std::vector<ElementBlock> whole_blocks(const TensorPart& part, std::int64_t first, std::int64_t count);

// Elements [first, first + count) of a rank's part, as runs of consecutive elements of the whole tensor, in order.
struct ElementRun {
  std::int64_t first = 0, whole_first = 0, count = 0;
};
std::vector<ElementRun> whole_runs(const TensorPart& part, std::int64_t first, std::int64_t count);

// Sets values[i] to the initial value of element first + i of this rank's part. It depends only on (seed, name, element of the
// whole tensor), never on the rank (core/philox.h).
void initial_values(const Parameter& parameter, std::uint64_t seed, std::int64_t first, std::span<float> values);

// One entry per segment of the model, from a View for each parameter of `list`; segments without parameters in `list` stay
// empty.
std::vector<SegmentParameters> bind_parameters(const ModelShape& shape, const std::vector<Parameter>& list,
                                               std::span<const View> views);
// The same for parameters that are FP8 operands; `quantized`: one for each parameter of the list, empty if it is none.
std::vector<QuantizedParameters> bind_quantized(const ModelShape& shape, const std::vector<Parameter>& list,
                                                std::span<const ops::Quantized> quantized);

}  // namespace plait::model
