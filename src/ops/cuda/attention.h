// The two implementations of attention on GPUs: cuDNN for bf16, our own kernels for f32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "core/stream.h"
#include "core/view.h"
#include "ops/attention.h"

namespace plait::ops::cuda {

// Attention in bf16 through cuDNN's fused kernels (cudnn-frontend's SDPA nodes), one graph per shape and direction.
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

// Attention in f32 with our own kernels, for verification: sums have a fixed order and nothing is rounded below f32.
std::size_t attention_f32_workspace_bytes(const AttentionShape& shape);
void attention_f32_forward(StreamRef stream, const AttentionForward& args);
void attention_f32_backward(StreamRef stream, const AttentionBackward& args, View workspace);

}  // namespace plait::ops::cuda
