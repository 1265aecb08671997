// What a device can do, as far as a step's time and memory depend on it: nominal figures for devices that nobody measured.
//
// The rates are what programs reach of the data sheet's, not the data sheet's: the time of something large. What small things
// cost beyond that is in the two times per kernel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"

namespace plait::topology {

struct DeviceProfile {
  std::string name;                // "H200"
  double half_flops = 0;           // FLOP/s of large matrix products in bf16 (fp16 where there is no bf16)
  double single_flops = 0;         // in f32; f64 is taken as half of it
  double memory_bytes_per_s = 0;   // bytes read and written by a large kernel
  double memory_bytes = 0;         // that a program can have
  double matrix_seconds = 0;       // what a matrix product takes beyond its FLOPs: filling the device and draining it
  double kernel_seconds = 0;       // the least that any kernel takes
  double message_seconds = 0;      // until the first byte of a message between stages moves
  double collective_seconds = 0;   // until the first byte of a collective moves, once all are there
  double round_seconds = 0;        // of each further round of a collective, beside the latency of the way
  double collective_slowdown = 0;  // how much longer compute takes beside a collective: 0.05 is 5 %
  double context_bytes = 0;        // memory that libraries take beside the plan
  double collectives_bytes = 0;    // beside that, of a rank that has communicators, once
  double communicator_bytes = 0;   // and of each of them
};

// Nominal, by the name that the device gives itself (core/device.h device_name) or by a short one ("h200", "a100", "cpu"); case
// does not matter. For an unknown name, ConfigError listing the known ones.
DeviceProfile nominal_profile(std::string_view device);
std::vector<std::string> nominal_profile_names();

// FLOP/s of large matrix products in this type.
double matrix_flops(const DeviceProfile& profile, DType dtype);

}  // namespace plait::topology
