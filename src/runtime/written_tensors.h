// The meaningful tensors that an instruction writes: for comparing layouts, and for finding out where a value went wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/view.h"
#include "model/activations.h"
#include "parallel/program/program.h"
#include "parallel/rank_plan.h"
#include "runtime/rank_buffers.h"
#include "runtime/step_inputs.h"

namespace plait::runtime {

struct WrittenTensor {
  std::string name;  // "qkv", "gradient of up", or the parameter's name for its gradient
  View view;
  int segment = 0;  // its segment; with the name and the micro-batch, the same in all layouts
  model::Split split = model::Split::none;
  int parameter = -1;  // index into RankPlan::parameters if this is a parameter's gradient so far
};

// The tensors written by an instruction of plan.train; empty for instructions that belong to no segment.
std::vector<WrittenTensor> written_by(const parallel::RankPlan& plan, const RankBuffers& buffers,
                                      const parallel::Instruction& instruction);

// The place of a segment's instruction in a serial run of the step over micro-batches of the same data-parallel rank.
std::int64_t execution_order(const parallel::Instruction& instruction, int segments);

// A place in a step where a tensor first held a value that is not finite.
struct NonFinite {
  std::int64_t order = -1;  // in the execution of the whole model, comparable between ranks; -1: before the step
  std::string where;        // "forward micro-batch 0 segment 3: qkv"
};

// Repeats a step that halted, and returns the first tensor that is not finite. nullopt if all of this rank's tensors are
// finite. Collective; blocks.
class Interpreter;
std::optional<NonFinite> synchronize_find_non_finite(Interpreter& interpreter, BatchSource& batches);

}  // namespace plait::runtime
