// Turns CUDA statuses into DeviceError, and looks up the driver's functions. For rooms that call CUDA themselves.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <source_location>

namespace plait {
void check(cudaError_t status, std::source_location where = std::source_location::current());
void check(CUresult status, const char* call, std::source_location where = std::source_location::current());

// A driver function in its form of CUDA `version` (12000 is 12.0). plait does not link the driver, so that it also starts
// without one. DeviceError if the driver has no such function.
void* driver_function(const char* name, int version, std::source_location where = std::source_location::current());
}  // namespace plait
