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

// How far off a step may be that is predicted from nominal figures: at best and at worst so many times the prediction, and why.
struct StepInterval {
  double best = 1, worst = 1;
  std::string basis = {};
  friend bool operator==(const StepInterval&, const StepInterval&) = default;
};

struct DeviceProfile {
  std::string name;            // "H200"
  std::string unit = "GPU";    // what one of them is called: "GPU", "CPU rank"
  bool has_bf16 = true;        // computes in it
  double half_peak_flops = 0;  // by the data sheet; 0: there is none
  double single_peak_flops = 0;
  double fp8_peak_flops = 0;      // 0: no products of FP8 operands
  double half_flops = 0;          // FLOP/s of large matrix products in bf16 (fp16 where there is no bf16)
  double single_flops = 0;        // in f32; f64 is taken as half of it
  double fp8_flops = 0;           // of products of FP8 operands, accumulated in full
  double memory_bytes_per_s = 0;  // bytes read and written by a large kernel
  double memory_bytes = 0;        // that a program can have
  // Of steps that compute in bf16, in other types, and with FP8 products.
  StepInterval half_interval = {}, single_interval = {}, fp8_interval = {};
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
// does not matter. For an unknown name, which `key` has, ConfigError listing the known ones.
DeviceProfile nominal_profile(std::string_view device, const std::string& key = "--device");
std::vector<std::string> nominal_profile_names();

// FLOP/s of large matrix products in this type: as programs reach it, and by the data sheet (0: there is none).
double matrix_flops(const DeviceProfile& profile, DType dtype);
double peak_matrix_flops(const DeviceProfile& profile, DType dtype);
const StepInterval& step_interval(const DeviceProfile& profile, DType dtype);

}  // namespace plait::topology
