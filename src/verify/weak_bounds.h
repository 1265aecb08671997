// Bounds that have grown so far that a fault could hide beneath them. An error that stays within such a bound says little, so
// `plait verify` says which ones they are, and fails with --strict.
//
// How far is too far follows from faults: each of those in tests/verify/mutation_test.cpp makes some error larger than the
// limit here, so that bounds at these limits would catch every one of them; all but faults of FP8 operands, whose errors show
// against the bounds of fp64 alone. The smallest errors of faults that show nowhere else were 0.5 (loss), 0.11 (norm), 0.42
// (gradients) and 1.6 (weights); the limits are half of that and less.
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
  bool by_rounding = false;    // of parameters: updates are no larger than what parameters are rounded by

  std::string text() const;
};

// Bounds above this are weak: of relative errors; of parameters in units of what updates move the elements with the largest
// gradients by, so that an update which is lost, or made twice, is an error of 1. Those elements have the narrowest bounds of
// their tensor, 2 lr gradient(drift) a step and what parameters are rounded by, and a fault in a tensor shows where its bound
// is narrowest.
double weak_from(ErrorKind kind);

// For each kind the first step of which the bound is weak. `steps`: of the serial run, all of them. Weights are parameters.
std::vector<WeakBound> weak_bounds(const VerifyBounds& bounds, const std::vector<StepFigures>& steps);

void to_json(nlohmann::ordered_json& json, const WeakBound& weak);

}  // namespace plait::verify
