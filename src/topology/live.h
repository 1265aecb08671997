// The machine as this process may use it: discovery, completed by CUDA.
#pragma once

#include "topology/discover.h"

namespace plait::topology {

// discover() with the GPUs numbered in CUDA's order, and with peer access, native atomics and performance rank from CUDA for
// the pairs that it sees. CUDA overrides NVML, which does not know about a container's limits.
Discovered discover_live();

}  // namespace plait::topology
