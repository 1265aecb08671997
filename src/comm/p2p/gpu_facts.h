// What CUDA and NVML say about GPUs. Private to src/comm/p2p. Defined in cuda/, or in no_cuda.cpp where plait is built without
// CUDA (those throw DeviceError).
#pragma once

#include "comm/p2p/pair_facts.h"

namespace plait::comm::p2p {

void describe_gpu(Device device, EndFacts& facts);

}  // namespace plait::comm::p2p
