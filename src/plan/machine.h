// The machine as costs depend on it, apart from how it is connected (topology/fabric.h).
#pragma once

#include <optional>
#include <string>

#include "plan/calibration.h"
#include "topology/device_profile.h"

namespace plait::plan {

struct Machine {
  topology::DeviceProfile profile;
  std::optional<Calibration> calibration;  // of this model on this device
  // "nominal figures of H200", "measured on NVIDIA H200": for explanations.
  std::string origin() const {
    return calibration ? "measured on " + calibration->device : "nominal figures of " + profile.name;
  }
};

}  // namespace plait::plan
