// Fits L(N, D) = E + A / N^alpha + B / D^beta to measured losses, as in approach 3 of Hoffmann et al., "Training
// Compute-Optimal Large Language Models" (2022).
//
// It uses variable projection (Golub and Pereyra 1973; Kaufman's form of its Gauss-Newton step, 1975): for given exponents, E,
// A and B are a linear least squares problem over values >= 0, which is solved exactly; only the two exponents are searched,
// from every local minimum of a grid. Residuals are relative, loss / law - 1, which to first order is the difference of the
// logarithms that Hoffmann et al. use, and keeps the inner problem linear. They are weighted by Huber's function at 1.345 times
// their robust scale (Huber, "Robust Statistics", 1981), re-estimated until it settles: so single bad runs count little, and
// the fit of normal noise loses 5 % against least squares. Hoffmann et al. fix that threshold at 0.001, about the noise of
// their losses; Besiroglu et al., "Chinchilla Scaling: A replication attempt" (2024), show what their optimiser then missed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/statistics.h"

namespace plait::study {

// One training run.
struct LossPoint {
  double parameters = 0;  // N
  double tokens = 0;      // D: trained on
  double loss = 0;        // at the end, on tokens common to all runs; nats per token
};

// FLOPs of a budget: forward and backward of N parameters over D tokens. Attention's own products are left out, as is usual;
// study/isoflop_grid.h defines N.
inline double training_flops(double parameters, double tokens) { return 6 * parameters * tokens; }

// ConfigError unless all three are positive and finite.
void require_usable(const LossPoint& point);

struct ScalingLaw {
  double E = 0, A = 0, alpha = 0, B = 0, beta = 0;
  double loss(double parameters, double tokens) const;
  // The N and D with the least loss among those with 6 N D = flops.
  double best_parameters(double flops) const;
  double best_tokens(double flops) const;
  // best_parameters(C) grows as C^a, best_tokens(C) as C^(1 - a).
  double parameter_exponent() const { return beta / (alpha + beta); }
};

struct ScalingLawOptions {
  double confidence = 0.9;  // of intervals
  int bootstraps = 1000;
  std::uint64_t seed = 1234;
};

struct ScalingLawFit {
  std::string refused;                 // the reason why there is no law; "" if there is one
  ScalingLaw law;                      // valid unless refused, like the following members
  double residual_scale = 0;           // robust standard deviation of loss / law - 1
  std::vector<ScalingLaw> bootstraps;  // the laws of as many resampled data sets
  double confidence = 0.9, degrees_of_freedom = 1;
  // The interval of any quantity that follows from a law, from its values over the bootstraps (study/statistics.h).
  Interval interval(const std::function<double(const ScalingLaw&)>& of) const;
};

// Bounds of the search for either exponent. A minimum on a bound does not count.
inline constexpr double least_exponent = 0.02, most_exponent = 3;

// Refused, with the reason and a remedy, unless the minimum is interior: both exponents within their bounds, E, A and B above
// 0. Otherwise the data do not determine one of the five, nor anything that follows from it.
//
// Intervals come from a wild bootstrap (Wu 1986): each resampled loss is the law's, off by the residual of the same point with
// a random sign, divided by 1 - leverage, since a fit of five unknowns follows its noise (MacKinnon and White's HC3, 1985). It
// requires neither normal noise nor equal noise at every size.
//
// ConfigError if there are fewer than 6 points, or fewer than 3 different N or D, or a value that is not positive and finite.
ScalingLawFit fit_scaling_law(std::span<const LossPoint> points, const ScalingLawOptions& options = {});

}  // namespace plait::study
