// Finds where a step first went wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/interpreter.h"

namespace plait::runtime {

// A place in a step where a tensor first held a value that is not finite.
struct NonFinite {
  std::int64_t order = -1;  // in the execution of the whole model, comparable between ranks; -1: before the step
  std::string where;        // "forward micro-batch 0 segment 3: qkv"
};

// For a step that halted: repeats it and returns the first tensor that is not finite. nullopt if all of this rank's tensors
// are finite. Collective; blocks.
std::optional<NonFinite> synchronize_find_non_finite(Interpreter& interpreter, BatchSource& batches);

}  // namespace plait::runtime
