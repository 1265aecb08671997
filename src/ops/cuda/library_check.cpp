#include "ops/cuda/library_check.h"

#include <string>

#include "core/error.h"

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
