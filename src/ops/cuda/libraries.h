// The libraries behind operations on GPUs. Turns the statuses of cuBLASLt and cuDNN into DeviceErrors. Only this folder
// includes their headers.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <source_location>

namespace plait {

void check(cublasStatus_t status, std::source_location where = std::source_location::current());
void check(cudnnStatus_t status, std::source_location where = std::source_location::current());

}  // namespace plait
