// What a predicted step means for the run: its rate, and the time and devices that all steps take.
#pragma once

#include <optional>
#include <string>

#include "plan/planner.h"

namespace plait::plan {

struct Throughput {
  double tokens_per_second = 0;  // of all devices
  double flops_per_device = 0;   // per second, of the model (model/model_flops.h)
  std::optional<double> mfu;     // 0..1, of log.peak_tflops or the data sheet's peak; nothing where neither is known
  std::int64_t steps = 0;
  double tokens = 0;        // of the whole run
  double run_seconds = 0;   // training steps alone: without evaluation, checkpoints and start
  double device_hours = 0;  // of all devices together
};

Throughput throughput_of(const PlannedJob& job, const Machine& machine);

// A line each, of at most 80 characters. `unit`: as topology::DeviceProfile has it.
std::string speed_text(const Throughput& throughput, const std::string& unit);
std::string run_text(const Throughput& throughput, const std::string& unit);

}  // namespace plait::plan
