// Turns a CUDA runtime status into a DeviceError. Include only from code built with CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

namespace plait {

void check(cudaError_t status, std::source_location where = std::source_location::current());

}  // namespace plait
