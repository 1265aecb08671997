// The tensors in the arena of one rank: their names, their shapes, and the item of the memory plan that holds each.
//
// plan_memory() lists them; code that has an arena of that plan finds every tensor by this list.
#pragma once

#include <vector>

#include "model/activations.h"
#include "parallel/program/program.h"

namespace plait::parallel {

// The tensors that a rank has once, for any number of micro-batches.
enum class StateTensor {
  weights,        // flat, like the next five: parallel/flat_layout.h
  gradients,      // whole ones, as backward writes them
  gradient_sums,  // ZeRO-2: this rank's part of their sums
  master,         // the weights that the optimizer updates, if they are not `weights`
  exp_avg,
  exp_avg_sq,
  adamw_table,
  scalars,          // [3]: sum of squares, sum of losses, number of targets that do not count
  evaluation_sums,  // [2]: sum of losses, number of targets that do not count
  arrival,
  optimizer_state,
  quantized_weights,  // FP8 operands: QuantizedWeights (parallel/flat_layout.h)
  weight_scales,      // [weights, ops::scale_floats]: the ops::Quantized::scale of each
  rope_table,
  op_workspace,
  operand_workspace,  // model::operand_workspace_bytes()
  exchange_workspace,
};

struct StateTensorPlace {
  StateTensor which = StateTensor::weights;
  model::TensorSpec spec;
  int item = 0;  // index into the items of RankPlan::memory
};

// A tensor of a buffer that instructions name. The scratch of many buffers shares one item.
struct BufferTensorPlace {
  BufferId buffer;
  model::TensorSpec spec;
  bool recomputed = false;  // in a stash: an activation that backward computes again, not a gradient
  int item = 0;             // index into the items of RankPlan::memory
};

struct RankTensors {
  std::vector<StateTensorPlace> state;
  std::vector<BufferTensorPlace> buffers;
};

// Fills `plan.memory` and `plan.tensors`: the tensors, their sizes and their lifetimes. The rest of `plan` must be there.
struct RankPlan;
void plan_memory(RankPlan& plan);

}  // namespace plait::parallel
