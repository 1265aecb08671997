#include "ops/cuda/libraries.h"

#include <cuda_runtime_api.h>

#include <string>

#include "core/cuda_check.h"
#include "core/error.h"
#include "ops/implementations.h"

namespace plait {

void check(cublasStatus_t status, std::source_location where) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string("cuBLASLt: ") + cublasLtGetStatusName(status) + ": " + cublasLtGetStatusString(status) + " [" +
                    to_string(where) + "]");
}

void check(cudnnStatus_t status, std::source_location where) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw DeviceError(std::string("cuDNN: ") + cudnnGetErrorString(status) + " [" + to_string(where) + "]");
}

}  // namespace plait

namespace plait::ops::cuda {

std::vector<LibraryVersion> library_versions() {
  int runtime = 0;
  check(cudaRuntimeGetVersion(&runtime));
  const std::size_t cudnn = cudnnGetVersion();  // from version 9 on: major * 10000 + minor * 100 + patch
  return {
      {"CUDA", std::to_string(runtime / 1000) + "." + std::to_string(runtime / 10 % 100)},
      {"cuBLASLt", std::to_string(cublasLtGetVersion())},
      {"cuDNN", std::to_string(cudnn / 10000) + "." + std::to_string(cudnn / 100 % 100) + "." + std::to_string(cudnn % 100)}};
}

}  // namespace plait::ops::cuda
