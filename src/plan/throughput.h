// The predicted step as a rate, and the time and devices of the whole run.
#pragma once

#include <optional>
#include <string>

#include "plan/planner.h"

namespace plait::plan {

struct Throughput {
  double tokens_per_second = 0;  // of all devices together
  double flops_per_device = 0;   // model FLOPs per second (model/model_flops.h)
  std::optional<double> mfu;     // 0..1, of log.peak_tflops or the data sheet's peak; nothing if neither is known
  std::int64_t steps = 0;
  double tokens = 0;        // of the whole run
  double run_seconds = 0;   // training steps alone: without evaluation, checkpoints and start
  double device_hours = 0;  // of all devices together
};

Throughput throughput_of(const PlannedJob& job, const Machine& machine);

// One line each, at most 80 characters. `unit`: as in topology::DeviceProfile.
std::string speed_text(const Throughput& throughput, const std::string& unit);
std::string run_text(const Throughput& throughput, const std::string& unit);

}  // namespace plait::plan
