// Compares one rank's gradients and parameters with the serial run's.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/interpreter.h"
#include "verify/bounds.h"
#include "verify/reference.h"

namespace plait::verify {

struct ParameterError {
  std::size_t parameter = 0;  // index into RankPlan::parameters
  double largest = 0;         // relative error of this rank's part
  // For the element with the largest share of its bound.
  double error = 0, bound = 0;
};

// In the order of the flat buffers: backward order of the segments. Reduced gradients of the last step, before clipping.
// Blocks.
std::vector<ParameterError> gradient_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                            const VerifyBounds& bounds);
// Master weights after the last step. Blocks.
std::vector<ParameterError> parameter_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                             const VerifyBounds& bounds);
// The weights that segments compute with after it: this rank's part of every parameter, gathered under ZeRO. Blocks.
std::vector<ParameterError> weight_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                          const VerifyBounds& bounds);

}  // namespace plait::verify
