// Weak bounds: those that have grown so far that a fault could hide beneath them. An error within such a bound says little, so
// `plait verify` names them, and fails with --strict.
//
// The limits follow from faults: each fault in tests/verify/mutation_test.cpp makes some error larger than the limit here, so
// bounds at these limits would catch every one of them, except faults of FP8 operands, whose errors show only against the
// bounds of fp64. The smallest errors of faults that show nowhere else were 0.5 (loss), 0.11 (norm), 0.42 (gradients) and 1.6
// (weights); the limits are half of that and less.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "verify/bounds.h"
#include "verify/findings.h"

namespace plait::verify {

struct WeakBound {
  ErrorKind kind = ErrorKind::loss;
  std::int64_t step = 0;
  double bound = 0, most = 0;  // `most`: weak_from(kind)
  bool by_rounding = false;    // of parameters: updates are no larger than the rounding of parameters

  std::string text() const;
};

// Bounds above this are weak: for relative errors; for parameters in units of the distance that updates move the elements with
// the largest gradients, so that a lost or doubled update is an error of 1. These elements have the narrowest bounds of their
// tensor, 2 lr gradient(drift) per step plus the rounding of parameters, and a fault in a tensor shows where its bound is
// narrowest.
double weak_from(ErrorKind kind);

// For each kind the first step with a weak bound. `steps`: all of the serial run. Weights count as parameters.
std::vector<WeakBound> weak_bounds(const VerifyBounds& bounds, const std::vector<StepFigures>& steps);

void to_json(nlohmann::ordered_json& json, const WeakBound& weak);

}  // namespace plait::verify
