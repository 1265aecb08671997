// The first place where a layout departs from the serial run.
#pragma once

#include <compare>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "parallel/mesh.h"

namespace plait::verify {

// The compared parts of a step, in their order of computation.
enum class StepPart {
  tensors,     // written by forward and backward, instruction by instruction
  gradients,   // after reductions
  loss,        // after the sum over ranks
  norm,        // of the gradients, likewise
  parameters,  // after the update
  weights,     // used by segments from then on
};

// Divergences are ordered by time: step, part, then `order` and `index` within the part, then rank.
struct Divergence {
  // The place in execution.
  std::int64_t step = 0;
  StepPart part = StepPart::tensors;
  std::int64_t order = 0;  // parallel::execution_order, or segments in backward order
  std::int64_t index = 0;  // of the tensor among those of that order
  int rank = 0;

  parallel::Coordinates at = {};  // of the rank
  std::string what = {};          // "backward_input micro-batch 0 segment 3: gradient of qkv"
  std::string tensor = {};        // the last part of `what` alone
  int segment = -1, micro_batch = -1;
  double error = 0, bound = 0;
  std::string remark = {};  // further knowledge; may be empty

  // "step 1, backward_input micro-batch 0 segment 3: gradient of qkv, rank 2 (pipeline 1, data 0, tensor 0), relative error
  // 0.7 (bound 1.0e-05)"
  std::string text() const;
  bool before(const Divergence& other) const;
};
void to_json(nlohmann::ordered_json& json, const Divergence& divergence);
void from_json(const nlohmann::ordered_json& json, Divergence& divergence);

}  // namespace plait::verify
