// `plait study fit`: fits scaling laws to the losses of a study, and reports them.
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
  double most_flops = 0;  // of a run
  ScalingLawFit law;      // from all runs
  IsoflopFit isoflop;     // from the budgets with more than one size, if there are any
  std::vector<double>
      budgets;  // FLOPs for which the report gives the best N and D: the measured ones, and ten times the largest

  // The reason why the losses give no law; "" if they do. Either the law of all runs was refused, or there are budgets with
  // more than one size and none has its minimum inside its sizes, so that the best size is not among the measured ones.
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

// The report as a page of Markdown.
std::string to_markdown(const LossFit& fit);

}  // namespace plait::study
