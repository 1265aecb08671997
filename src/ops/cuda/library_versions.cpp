#include "ops/library_versions.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "core/cuda_check.h"

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
