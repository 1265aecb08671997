#include <cuda_runtime_api.h>

#include <array>

#include "comm/topology/bus_id.h"
#include "comm/topology/live.h"
#include "core/cuda_check.h"
#include "core/device.h"
#include "core/error.h"

namespace plait::comm::topology {

std::vector<std::string> cuda_gpus() {
  std::vector<std::string> gpus;
  const int count = cuda_device_count();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    std::array<char, 32> text{};
    check(cudaDeviceGetPCIBusId(text.data(), text.size(), ordinal));
    const auto bus_id = bus_id_from(text.data());
    if (!bus_id) throw DeviceError("CUDA's GPU " + std::to_string(ordinal) + " has no PCI address but '" + text.data() + "'");
    gpus.push_back(*bus_id);
  }
  return gpus;
}

}  // namespace plait::comm::topology
