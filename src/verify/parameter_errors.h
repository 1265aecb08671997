// What one rank holds of gradients and parameters against the serial run's.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/interpreter.h"
#include "verify/bounds.h"
#include "verify/reference.h"

namespace plait::verify {

struct ParameterError {
  std::size_t parameter = 0;  // index into RankPlan::parameters
  double largest = 0;         // relative error of what this rank holds of it
  // Of the element that takes the largest share of its bound.
  double error = 0, bound = 0;
};

// In the order of the flat buffers: backward order of the segments. Reduced gradients of the last step, before clipping.
// Blocks.
std::vector<ParameterError> gradient_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                            const VerifyBounds& bounds);
// Master weights after it. Blocks.
std::vector<ParameterError> parameter_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                             const VerifyBounds& bounds);
// What segments compute with after it: all of what this rank has of every parameter, gathered under ZeRO. Blocks.
std::vector<ParameterError> weight_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                          const VerifyBounds& bounds);

}  // namespace plait::verify
