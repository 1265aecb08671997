// plait bench calibrate: what this machine takes for the parts of a model's step, for the planner (plan/calibration.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/bench_ranks.h"
#include "core/config.h"
#include "plan/calibration.h"

namespace plait::bench {

struct CalibrationRequest {
  Config config;             // the model, its data's sequence length, precision and recomputation
  BenchRanks ranks;          // all measure at once, as all compute at once in a step; 1 is allowed
  std::vector<int> tensors;  // sizes of tensor groups; empty: powers of two up to the ranks that the model's shape allows
  std::vector<std::int64_t> micro_batches;  // empty: 1, 2, 4, 8, and what the configuration says
  int rounds = 5;                           // times are their median, then the slowest rank's
  bool communication = true;                // also collectives among 2, 4, ... ranks, compute beside them, and messages
  std::vector<std::string> argv;
  std::function<void(const std::string&)> note;  // progress, for people
};

// Blocks are timed in a model of two transformer blocks, each pass by itself; a tensor rank computes alone, with a group that
// is not there (comm/absent_communicator.h). Sizes that do not fit the device are left out with a note. ConfigError for a model
// that a requested split does not divide, CommError and DeviceError as the benches.
plan::Calibration calibrate(const CalibrationRequest& request);

}  // namespace plait::bench
