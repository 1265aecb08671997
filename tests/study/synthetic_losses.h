// Losses of runs that never were, by a law that is known.
#pragma once

#include <string_view>
#include <vector>

#include "core/philox.h"
#include "study/scaling_law.h"

namespace plait::study {

// Hoffmann et al. 2022, approach 3.
inline constexpr ScalingLaw chinchilla{1.69, 406.4, 0.34, 410.7, 0.28};

// Every size at every budget, 6 N D FLOPs.
inline std::vector<LossPoint> isoflop_losses(const ScalingLaw& law, const std::vector<double>& sizes,
                                             const std::vector<double>& budgets) {
  std::vector<LossPoint> points;
  for (const double n : sizes) {
    for (const double flops : budgets) points.push_back({n, flops / 6 / n, law.loss(n, flops / 6 / n)});
  }
  return points;
}

// Every size with every number of tokens.
inline std::vector<LossPoint> rectangular_losses(const ScalingLaw& law, const std::vector<double>& sizes,
                                                 const std::vector<double>& tokens) {
  std::vector<LossPoint> points;
  for (const double n : sizes) {
    for (const double d : tokens) points.push_back({n, d, law.loss(n, d)});
  }
  return points;
}

// Every loss off by a normal share of it.
inline std::vector<LossPoint> with_noise(std::vector<LossPoint> points, double share, std::uint64_t seed) {
  const Random random(seed, "noise");
  for (std::size_t i = 0; i < points.size(); ++i) points[i].loss *= 1 + share * static_cast<double>(random.normal(i));
  return points;
}

inline const std::vector<double> five_sizes = {5e7, 2e8, 6e8, 2e9, 8e9};
inline const std::vector<double> four_budgets = {6e18, 6e19, 6e20, 3e21};

}  // namespace plait::study
