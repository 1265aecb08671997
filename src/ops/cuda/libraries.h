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

namespace plait::ops::cuda {

// cuBLASLt's functions by their names without its prefix.
struct CublasLt {
  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtDestroy) Destroy = nullptr;
  decltype(&cublasLtGetStatusName) GetStatusName = nullptr;
  decltype(&cublasLtGetStatusString) GetStatusString = nullptr;
  decltype(&cublasLtGetVersion) GetVersion = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate = nullptr;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy = nullptr;
};

// Opens the library at the first call: its relocations and NVRTC's took 120 ms of every start. Throws DeviceError if there is
// none.
const CublasLt& cublas_lt();

}  // namespace plait::ops::cuda
