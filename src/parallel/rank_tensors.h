// The tensors in the arena of one rank: which there are, of which shape, and which item of the memory plan each is in.
//
// plan_memory() lists them; whoever has an arena of that plan finds every tensor by this list.
#pragma once

#include <vector>

#include "model/activations.h"
#include "parallel/program/program.h"

namespace plait::parallel {

// What a rank has once, however many micro-batches there are.
enum class StateTensor {
  weights,        // flat, as the next five: parallel/flat_layout.h
  gradients,      // whole ones, as backward writes them
  gradient_sums,  // ZeRO-2: this rank's part of their sums
  master,         // weights that the optimizer updates, where they are not `weights`
  exp_avg,
  exp_avg_sq,
  adamw_table,
  scalars,          // [3]: sums of squares, of losses, and of targets that do not count
  evaluation_sums,  // [2]: of losses, and of targets that do not count
  arrival,
  optimizer_state,
  quantized_weights,  // FP8 operands: QuantizedWeights (parallel/flat_layout.h)
  weight_scales,      // [weights, ops::scale_floats]: ops::Quantized::scale of each
  rope_table,
  op_workspace,
  operand_workspace,  // model::operand_workspace_bytes()
  exchange_workspace,
};

struct StateTensorPlace {
  StateTensor which = StateTensor::weights;
  model::TensorSpec spec;
  int item = 0;  // of RankPlan::memory
};

// A tensor of a buffer that instructions name. Scratch of many buffers is in one item.
struct BufferTensorPlace {
  BufferId buffer;
  model::TensorSpec spec;
  bool recomputed = false;  // of a stash: an activation that backward computes again, not a gradient
  int item = 0;             // of RankPlan::memory
};

struct RankTensors {
  std::vector<StateTensorPlace> state;
  std::vector<BufferTensorPlace> buffers;
};

// Fills `plan.memory` and `plan.tensors`: which tensors there are, how large, and when they live. Everything else is there.
struct RankPlan;
void plan_memory(RankPlan& plan);

}  // namespace plait::parallel
