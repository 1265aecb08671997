// Attention in bf16 through cuDNN's fused kernels (cudnn-frontend's SDPA nodes), one graph per shape and direction.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "core/view.h"
#include "ops/attention.h"

namespace plait::ops::cuda {

class CudnnAttention {
 public:
  explicit CudnnAttention(bool deterministic);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // The larger of the two directions' workspaces. Builds their graphs; DeviceError where cuDNN has no kernel for the shape.
  std::size_t workspace_bytes(const AttentionShape& shape);
  void forward(cudaStream_t stream, const AttentionForward& args, View workspace);
  void backward(cudaStream_t stream, const AttentionBackward& args, View workspace);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace plait::ops::cuda
