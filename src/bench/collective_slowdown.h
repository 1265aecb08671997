// Measures the slowdown of a model's compute by concurrent all-reduces, such as those of gradients during backward.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/calibration_model.h"
#include "config/config.h"
#include "launch/launch_plan.h"

namespace plait::bench {

struct CollectiveSlowdownRequest {
  Config config;  // the model, and comm.max_ctas
  std::int64_t vocab = 0;
  CalibrationCase measured;  // fits every rank
  int rounds = 5;
  std::chrono::milliseconds timeout{60'000};  // for one run
  std::vector<std::string> argv;
};

// Returns 0.05 for 5 % longer, and never less than 0. Every rank of `launch_plan` (threads) trains a small model by itself:
// alone, and during all-reduces among all ranks, which follow one another for as long as the model computes. Each run during
// all-reduces is compared with the runs alone before and after it. The result is the median over rounds of the rank with the
// largest slowdown. nullopt if the all-reduces ended too early in most rounds. CommError, DeviceError.
std::optional<double> measure_collective_slowdown(const CollectiveSlowdownRequest& request,
                                                  const launch::LaunchPlan& launch_plan);

}  // namespace plait::bench
