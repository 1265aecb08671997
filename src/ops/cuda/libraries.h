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

// cuBLASLt's functions by their names without its prefix.
#define PLAIT_CUBLASLT_FUNCTIONS(X)                                                                                      \
  X(Create)                                                                                                              \
  X(Destroy)                                                                                                             \
  X(GetStatusName)                                                                                                       \
  X(GetStatusString)                                                                                                     \
  X(GetVersion)                                                                                                          \
  X(Matmul)                                                                                                              \
  X(MatmulAlgoCheck)                                                                                                     \
  X(MatmulAlgoGetHeuristic) X(MatmulDescCreate) X(MatmulDescDestroy) X(MatmulDescSetAttribute) X(MatmulPreferenceCreate) \
      X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutDestroy)

namespace plait::ops::cuda {

struct CublasLt {
#define PLAIT_CUBLASLT_MEMBER(function) decltype(&::cublasLt##function) function = nullptr;
  PLAIT_CUBLASLT_FUNCTIONS(PLAIT_CUBLASLT_MEMBER)
#undef PLAIT_CUBLASLT_MEMBER
};

// Opens the library at the first call: 350,000 relocations, 100 ms that a process which multiplies nothing on a GPU does not
// spend. Throws DeviceError if there is none.
const CublasLt& cublas_lt();

}  // namespace plait::ops::cuda
