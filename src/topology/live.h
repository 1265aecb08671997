// The machine as this process may use it: discovery, with what CUDA adds to it.
#pragma once

#include "topology/discover.h"

namespace plait::topology {

// discover() with the GPUs numbered as CUDA counts them, and CUDA's word on peer access, native atomics and performance rank
// for the pairs that it sees: it goes before NVML's, which does not know of a container's limits.
Discovered discover_live();

}  // namespace plait::topology
