// The machine as far as costs depend on it; topology/fabric.h holds how it is connected.
#pragma once

#include <optional>
#include <string>

#include "model/activations.h"
#include "plan/calibration.h"
#include "topology/device_profile.h"

namespace plait::plan {

// The share of a device's memory that a plan leaves free, for the driver's own use and for fragmentation.
inline constexpr double free_share = 0.02;

struct Machine {
  topology::DeviceProfile profile;
  std::optional<Calibration> calibration;  // of this model on this device
  double usable_bytes() const { return (1 - free_share) * profile.memory_bytes; }
  // The uncertainty of a predicted step with such segments; nothing where the machine was measured.
  std::optional<topology::StepInterval> interval(const model::SegmentSizes& sizes) const {
    if (calibration) return std::nullopt;
    return topology::step_interval(profile, sizes.fp8 ? DType::e4m3 : sizes.compute);
  }
  // "nominal figures of H200", "measured on NVIDIA H200": for explanations.
  std::string origin() const {
    if (!calibration) return "nominal figures of " + profile.name;
    const bool whole = !calibration->collectives.empty() || !calibration->messages.empty();
    return "measured on " + calibration->device + (whole ? "" : ", with communication by nominal figures");
  }
};

}  // namespace plait::plan
