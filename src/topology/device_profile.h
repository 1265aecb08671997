// A device profile: the figures of a device that a step's time and memory depend on. Nominal figures are for devices that
// nobody measured.
//
// The rates are what programs reach, not the data sheet's, and hold for large operations. The two times per kernel cover the
// extra cost of small ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"

namespace plait::topology {

// Dense (no sparsity) peak in FLOP/s of the device with this name (core/device.h device_name), for matrix products in `dtype`
// with fp32 accumulation: bf16 on tensor cores (fp16 on Volta, which has no bf16), likewise e4m3, f32 outside. nullopt for
// other types and for devices that the table does not know, including slices of a device (MIG) and mobile versions.
std::optional<double> peak_flops(std::string_view device_name, DType dtype);

// The possible error of a step predicted from nominal figures: multiples of the prediction at best and at worst, and the
// reason.
struct StepInterval {
  double best = 1, worst = 1;
  std::string basis = {};
  friend bool operator==(const StepInterval&, const StepInterval&) = default;
};

struct DeviceProfile {
  std::string name;            // "H200"
  std::string unit = "GPU";    // the noun for one of them: "GPU", "CPU rank"
  bool has_bf16 = true;        // computes in bf16
  double half_peak_flops = 0;  // from the data sheet; 0: unknown
  double single_peak_flops = 0;
  double fp8_peak_flops = 0;      // 0: no FP8 products
  double half_flops = 0;          // FLOP/s of large matrix products in bf16 (fp16 without bf16)
  double single_flops = 0;        // in f32; f64 counts as half of it
  double fp8_flops = 0;           // of FP8 products, accumulated in full precision
  double memory_bytes_per_s = 0;  // bytes read and written by a large kernel
  double memory_bytes = 0;        // available to a program
  // For steps that compute in bf16, in other types, and with FP8 products.
  StepInterval half_interval = {}, single_interval = {}, fp8_interval = {};
  double matrix_seconds = 0;       // time of a matrix product beyond its FLOPs: filling the device and draining it
  double kernel_seconds = 0;       // minimum time of any kernel
  double message_seconds = 0;      // until the first byte of a message between stages moves
  double collective_seconds = 0;   // until the first byte of a collective moves, once all ranks are there
  double round_seconds = 0;        // for each further round of a collective, in addition to the latency of the way
  double collective_slowdown = 0;  // slowdown of compute during a collective: 0.05 is 5 %
  double context_bytes = 0;        // memory that libraries take in addition to the plan
  double collectives_bytes = 0;    // in addition, once, for a rank that has communicators
  double communicator_bytes = 0;   // and for each communicator
};

// Nominal figures, by the device's own name (core/device.h device_name) or by a short one ("h200", "a100", "cpu"), ignoring
// case. For an unknown name, given in `key`, a ConfigError listing the known ones.
DeviceProfile nominal_profile(std::string_view device, const std::string& key = "--device");
std::vector<std::string> nominal_profile_names();

// FLOP/s of large matrix products in this type: the rate programs reach, and the data sheet's (0: unknown).
double matrix_flops(const DeviceProfile& profile, DType dtype);
double peak_matrix_flops(const DeviceProfile& profile, DType dtype);
const StepInterval& step_interval(const DeviceProfile& profile, DType dtype);

}  // namespace plait::topology
