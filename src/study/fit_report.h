// `plait study fit`: scaling laws from the losses of a study, and what it says of them.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "study/isoflop_profiles.h"
#include "study/scaling_law.h"

namespace plait::study {

struct LossFit {
  int runs = 0;
  ScalingLawOptions options;
  double most_flops = 0;        // of a run
  ScalingLawFit law;            // of all runs
  IsoflopFit isoflop;           // of the budgets of several sizes, if there are any
  std::vector<double> budgets;  // FLOPs for which the report gives the best N and D: those measured, and ten times the largest

  // Why the losses give no law; "" if they do: that of all runs was refused, or budgets of several sizes are there and none of
  // them has its minimum inside its sizes, so that the best size is nowhere among those measured.
  std::string refused() const;
  bool extrapolates(double flops) const;  // beyond the runs
};

// ConfigError as fit_scaling_law.
LossFit fit_losses(std::span<const LossPoint> points, const ScalingLawOptions& options = {});

// {"runs", "confidence", "bootstraps", "seed", "refused": null or why,
//  "law": null or {"E", "A", "alpha", "B", "beta": each {"value", "low", "high"}, "residual_scale"},
//  "optimum": null or {"parameter_exponent", "token_exponent": as above, "budgets": [{"flops", "extrapolated",
//    "parameters", "tokens", "loss": as above}]},
//  "isoflop": {"refused", "parameter_exponent": null or as above, "coefficient", "budgets": [{"flops", "runs", "refused",
//    "parameters": null or as above, "tokens", "loss"}]}}
nlohmann::ordered_json to_json(const LossFit& fit);

// The same as a page of Markdown.
std::string to_markdown(const LossFit& fit);

}  // namespace plait::study
