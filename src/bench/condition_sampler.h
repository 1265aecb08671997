// Samples the conditions of GPUs during a measurement: clocks, power, temperature, energy, and reasons for throttling.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/device.h"
#include "topology/nvml.h"
#include "train/report/measurement.h"

namespace plait::bench {

struct SampledGpu {
  Device device;
  std::string bus_id;
};

// The GPUs among `devices` that NVML knows.
std::vector<SampledGpu> sampled_gpus(const topology::Nvml& nvml, const std::vector<Device>& devices);

// Asks NVML ten times a second, on its own thread, from begin() to end().
class ConditionSampler {
 public:
  // `nvml` has to outlive it.
  ConditionSampler(const topology::Nvml& nvml, std::vector<SampledGpu> gpus);
  ConditionSampler(const ConditionSampler&) = delete;
  ConditionSampler& operator=(const ConditionSampler&) = delete;

  void begin();
  // By GPU, without figures that NVML does not give. Empty if it never began.
  std::vector<train::DeviceConditions> end();

 private:
  struct Record {
    double clock_sum = 0, clock_count = 0, least_clock = 0, power_sum = 0, power_count = 0;
    std::optional<double> temperature, first_energy, last_energy;
    std::set<std::string> reasons;
  };
  void sample();

  const topology::Nvml& nvml_;
  const std::vector<SampledGpu> gpus_;
  std::vector<Record> records_;
  std::jthread thread_;
};

}  // namespace plait::bench
