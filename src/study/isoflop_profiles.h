// The best size for each compute budget, from runs with different sizes per budget: approach 2 of Hoffmann et al., "Training
// Compute-Optimal Large Language Models" (2022), section 3.2. It assumes less than a law of all losses (study/scaling_law.h)
// and serves as a check on it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "study/scaling_law.h"

namespace plait::study {

// The runs of one budget: a parabola through their losses over log N, around the lowest.
struct IsoflopMinimum {
  double flops = 0;  // geometric mean of 6 N D
  int runs = 0;
  int fitted = 0;                               // number of these that the parabola is fitted to
  std::string refused;                          // the reason why there is no minimum; "" if there is one
  double parameters = 0, tokens = 0, loss = 0;  // at the minimum; valid unless refused
  Interval parameters_interval;
};

struct IsoflopFit {
  std::vector<IsoflopMinimum> budgets;  // ascending in FLOPs
  std::string refused;                  // the reason why there is no power law; "" if there is one
  // best parameters = coefficient * flops^exponent, a line through the logarithms of the minima; valid unless refused.
  double exponent = 0, coefficient = 0;
  Interval exponent_interval;
};

// Runs whose 6 N D are within this share of each other belong to one budget, since steps consist of whole batches.
inline constexpr double budget_tolerance = 0.05;

// The parabola of a budget is fitted to sizes within this factor of the one with the lowest loss, and to its neighbours in any
// case. Losses are not parabolic farther out: along a budget L(N, D) has, in units of its second derivative over log N at the
// minimum, the third beta - alpha and the fourth alpha² - alpha beta + beta², so a factor of 4 away it is off by 2 % to 10 % of
// its rise with typical exponents, and sizes on one side only pull the minimum towards them: fitted to sizes that double from a
// quarter of the best one to 4096 times it, it comes out at 2.8 times the true value. Fewer sizes would leave too much noise: a
// factor of 4 includes five that double.
inline constexpr double fitted_within = 4;

// Budgets with fewer than 3 sizes do not count. A budget is refused if the lowest loss is at the smallest or largest size, or
// if the parabola has no minimum inside the sizes that it is fitted to: that would be extrapolation. The power law needs 3
// budgets that are not refused. Intervals come from a wild bootstrap, as in study/scaling_law.h, of the runs that parabolas are
// fitted to; NaN if three sizes leave no residuals to resample. ConfigError for a value that is not positive and finite.
IsoflopFit fit_isoflop_profiles(std::span<const LossPoint> points, const ScalingLawOptions& options = {});

}  // namespace plait::study
