// How much longer a model's compute takes while all-reduces go on beside it, as those of gradients do beside backward.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/calibration_model.h"
#include "core/config.h"
#include "launch/launch_plan.h"

namespace plait::bench {

struct CollectiveSlowdownRequest {
  Config config;  // the model, and comm.max_ctas
  std::int64_t vocab = 0;
  CalibrationCase measured;  // that fits every rank
  int rounds = 5;
  std::chrono::milliseconds timeout{60'000};  // for one run
  std::vector<std::string> argv;
};

// 0.05: 5 % longer. Every rank of `launch_plan`, which are threads, trains a small model by itself, alone and beside
// all-reduces among all of them, one after the other for as long as the model computes; each run beside is held against the
// runs alone before and after it. Median of the rounds, of the rank that suffers most; not below 0. Nothing if the all-reduces
// were over too early in most rounds. CommError, DeviceError.
std::optional<double> measure_collective_slowdown(const CollectiveSlowdownRequest& request,
                                                  const launch::LaunchPlan& launch_plan);

}  // namespace plait::bench
