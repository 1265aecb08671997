// The machines that are assumed when nothing says how the GPUs are connected.
#pragma once

#include <string>

#include "core/device.h"
#include "topology/graph.h"

namespace plait::topology {

struct AssumedTopology {
  Graph graph;
  std::string words;  // "8 GPUs on one NVSwitch (NV18 each), as in an HGX machine"
};

// GPUs: the device as it is sold in servers, up to eight on one host's NVSwitch (V100 and later data-centre GPUs), or on PCIe
// with two sockets (the others); beyond eight, as many such hosts as needed, on rails of the NICs that they are sold with
// (gpu_models.h). CPUs: `ranks` ranks that share one memory. `device`: a name as for nominal_profile().
AssumedTopology assume_topology(DeviceKind kind, const std::string& device, int ranks);

}  // namespace plait::topology
