// plait bench calibrate: measures the parts of a model's step on this machine, for the planner (plan/calibration.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/bench_ranks.h"
#include "config/config.h"
#include "core/task_progress.h"
#include "plan/calibration.h"

namespace plait::bench {

struct CalibrationRequest {
  Config config;             // for the model, the sequence length, precision and recomputation
  BenchRanks ranks;          // all measure at once, since all compute at once in a step; 1 is allowed
  std::vector<int> tensors;  // sizes of tensor groups; empty: powers of two up to the ranks that the model's shape allows
  std::vector<std::int64_t> micro_batches;  // empty: 1, 2, 4, 8, and the configuration's
  int rounds = 5;                           // a time is the median over rounds of the mean over blocks
  bool communication = true;  // also measure collectives among 2, 4, ... ranks, their effect on compute, and messages
  std::vector<std::string> argv;
  std::function<void(const std::string&)> note;  // for people
  ProgressCallback progress;
};

// Times each pass within steps of a model with a number of transformer blocks (bench/calibration_model.h). A tensor rank
// computes without the rest of its group (comm/communicator.h). Sizes that do not fit the device are skipped with a
// note. ConfigError if a requested tensor size does not divide the model; CommError and DeviceError as in the other benchmarks.
plan::Calibration calibrate(const CalibrationRequest& request);

}  // namespace plait::bench
