// Calibrations of this machine, kept between runs: one per device and model.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "core/device.h"
#include "plan/calibration.h"

namespace plait::site {

// The names of this device and model in a calibration. `vocab`: of the tokenizer.
std::string calibration_device(DeviceKind kind);  // of this machine: "NVIDIA H200", "CPU"
std::string model_key_of(const Config& config, std::int64_t vocab, DeviceKind kind);

// In $XDG_CACHE_HOME/plait or ~/.cache/plait; "" if neither is known.
std::string calibration_path(const std::string& device, const std::string& model_key);

// ConfigError naming the file and the fault, or that it cannot be written. Written for this user alone.
plan::Calibration load_calibration(const std::string& path);
// Makes the folder of `path`, and reports before the measurement anything that would keep save_calibration() from writing
// there.
void prepare_to_save(const std::string& path);
void save_calibration(const plan::Calibration& calibration, const std::string& path);

// The calibration kept for this machine and model, if any. An unreadable one is an error, never silently ignored.
std::optional<plan::Calibration> kept_calibration(const Config& config, std::int64_t vocab, DeviceKind kind);

}  // namespace plait::site
