#include "ops/cuda/libraries.h"

#include <cuda_runtime_api.h>

#include <string>

#include "core/cuda_check.h"
#include "core/error.h"
#include "core/shared_library.h"
#include "ops/implementations.h"

namespace plait {

void check(cublasStatus_t status, std::source_location where) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string("cuBLASLt: ") + ops::cuda::cublas_lt().GetStatusName(status) + ": " +
                    ops::cuda::cublas_lt().GetStatusString(status) + " [" + to_string(where) + "]");
}

void check(cudnnStatus_t status, std::source_location where) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw DeviceError(std::string("cuDNN: ") + cudnnGetErrorString(status) + " [" + to_string(where) + "]");
}

}  // namespace plait

namespace plait::ops::cuda {

const CublasLt& cublas_lt() {
  static const CublasLt functions = [] {
    const SharedLibrary library("cuBLASLt", {"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR), PLAIT_CUBLASLT_LIBRARY});
    CublasLt found;
    library.find(found.Create, "cublasLtCreate");
    library.find(found.Destroy, "cublasLtDestroy");
    library.find(found.GetStatusName, "cublasLtGetStatusName");
    library.find(found.GetStatusString, "cublasLtGetStatusString");
    library.find(found.GetVersion, "cublasLtGetVersion");
    library.find(found.Matmul, "cublasLtMatmul");
    library.find(found.MatmulAlgoCheck, "cublasLtMatmulAlgoCheck");
    library.find(found.MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
    library.find(found.MatmulDescCreate, "cublasLtMatmulDescCreate");
    library.find(found.MatmulDescDestroy, "cublasLtMatmulDescDestroy");
    library.find(found.MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
    library.find(found.MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
    library.find(found.MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
    library.find(found.MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
    library.find(found.MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
    library.find(found.MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
    return found;
  }();
  return functions;
}

std::vector<LibraryVersion> library_versions() {
  const auto runtime = [] {
    int version = 0;
    check(cudaRuntimeGetVersion(&version));
    return std::to_string(version / 1000) + "." + std::to_string(version / 10 % 100);
  };
  const auto cudnn = [] {
    const std::size_t version = cudnnGetVersion();  // from version 9 on: major * 10000 + minor * 100 + patch
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  };
  return {{"CUDA", runtime}, {"cuBLASLt", [] { return std::to_string(cublas_lt().GetVersion()); }}, {"cuDNN", cudnn}};
}

}  // namespace plait::ops::cuda
