// Facts about GPUs from CUDA and NVML. Private to src/comm/p2p. Defined in cuda/; a build without CUDA uses no_cuda.cpp, which
// throws DeviceError.
#pragma once

#include "comm/p2p/pair_facts.h"

namespace plait::comm::p2p {

void describe_gpu(Device device, EndFacts& facts);

}  // namespace plait::comm::p2p
