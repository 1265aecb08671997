// The machine as this process may use it: discovery, with what CUDA adds to it.
#pragma once

#include <string>
#include <vector>

#include "comm/topology/discover.h"

namespace plait::comm::topology {

// PCI addresses of the GPUs that this process sees, in the order in which CUDA counts them; none without a driver or in a build
// without CUDA. Makes no context.
std::vector<std::string> cuda_gpus();

// discover() with the GPUs numbered as CUDA counts them, and CUDA's word on peer access, native atomics and performance rank
// for the pairs that it sees: it goes before NVML's, which does not know of a container's limits.
Discovered discover_live();

}  // namespace plait::comm::topology
