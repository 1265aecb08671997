// The measurement of a job's steps, as `plait bench step --raw` tells it and a study keeps it: docs/studies.md has its keys.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/limits.h"
#include "core/record.h"
#include "parallel/ledger_json.h"

namespace plait::train {

// Conditions of one device during the measured steps, which may explain noise. Empty if the driver does not tell.
struct DeviceConditions {
  std::string device;                                                // "cuda:0"
  std::string name = {};                                             // "NVIDIA H200"
  std::optional<double> sm_clock_mhz = {}, least_sm_clock_mhz = {};  // mean and minimum
  std::optional<double> power_w = {};                                // mean
  std::optional<double> temperature_c = {};                          // maximum
  std::optional<double> energy_j = {};                               // of all measured steps together
  std::vector<std::string> throttle_reasons = {};                    // those seen at least once: "sw_power_cap"
};

// Memory of one rank's device.
struct RankMemory {
  double planned_bytes = 0;    // by the memory plan
  double allocated_bytes = 0;  // by plait
  double device_bytes = 0;     // in use on the device at the end, including the libraries' share
};

struct Measurement {
  std::vector<double> step_ms;                 // every measured step, in order, of rank 0
  std::vector<parallel::Ledger> ledgers;       // by rank, means over the measured steps
  std::vector<RankMemory> memory;              // by rank
  std::vector<DeviceConditions> devices = {};  // of rank 0's host; empty on CPUs
  std::optional<double> peak_flops = {};       // of one device, counted as an MFU of 1
  std::optional<double> load = {};             // the load average of the minute: processes that ran or wanted to
  std::int64_t tokens_per_step = 0;
  std::optional<double> loss = {};             // of the last step
  std::optional<double> validation_loss = {};  // of the last step, if the study measures losses
  std::optional<std::int64_t> tokens = {};     // trained on until then, if the study measures losses
};

inline constexpr record::Many<record::AnyValue> by_rank{static_cast<std::size_t>(limits::ranks.most), {}};

void declare(auto& field, Of<RankMemory> auto& memory) {
  field("planned_bytes", memory.planned_bytes, record::at_least(0));
  field("allocated_bytes", memory.allocated_bytes, record::at_least(0));
  field("device_bytes", memory.device_bytes, record::at_least(0));
}

void declare(auto& field, Of<DeviceConditions> auto& device) {
  field("device", device.device);
  field("name", device.name);
  field("sm_clock_mhz", device.sm_clock_mhz);
  field("least_sm_clock_mhz", device.least_sm_clock_mhz);
  field("power_w", device.power_w);
  field("temperature_c", device.temperature_c);
  field("energy_j", device.energy_j);
  field("throttle_reasons", device.throttle_reasons, record::at_most(64));
}

void declare(auto& field, Of<Measurement> auto& measured) {
  // A time of 0 would make a speed of none.
  field("step_ms", measured.step_ms, record::at_most(1'000'000, record::at_least(std::numeric_limits<double>::denorm_min())));
  field.check(!measured.step_ms.empty(), "step_ms", "must have one time at least");
  field("tokens_per_step", measured.tokens_per_step, record::whole(1));
  field("ledgers", measured.ledgers, by_rank);
  field("memory", measured.memory, by_rank);
  field("devices", measured.devices, by_rank);
  field("peak_flops", measured.peak_flops);
  field("load", measured.load);
  field("loss", measured.loss);
  field("validation_loss", measured.validation_loss);
  field("tokens", measured.tokens, record::whole(0));
}

}  // namespace plait::train
