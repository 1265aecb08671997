#include "ops/library_versions.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "core/cuda_check.h"

namespace plait::ops::cuda {

std::vector<LibraryVersion> library_versions() {
  int runtime = 0;
  check(cudaRuntimeGetVersion(&runtime));
  return {{"CUDA", std::to_string(runtime / 1000) + "." + std::to_string(runtime / 10 % 100)},
          {"cuBLASLt", std::to_string(cublasLtGetVersion())},
          {"cuDNN", std::to_string(cudnnGetVersion())}};
}

}  // namespace plait::ops::cuda
