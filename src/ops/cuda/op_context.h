// The context of one rank's CUDA operations: matrix-product plans, attention graphs, scratch.
#pragma once

#include <memory>
#include <string>

#include "ops/cuda/attention.h"
#include "ops/cuda/matmul.h"
#include "ops/op_context.h"

namespace plait::ops::cuda {

class CudaOpContext final : public OpContext {
 public:
  CudaOpContext(Device device, View workspace, const OpContextOptions& options);

  Device device() const override { return device_; }
  const OpContextOptions& options() const override { return options_; }
  View workspace() const override { return workspace_; }
  void set_tuning(bool on) override { matmul.set_tuning(on); }
  int untuned_shapes() const override { return matmul.untuned_problems(); }
  std::vector<std::string> choices() const override;
  int adopt_choices(const std::vector<std::string>& choices) override;

  // Two words for each scale that one kernel finds (scale.cuh), for kernels of this stream, which need not be the one that the
  // context serves.
  static constexpr std::int64_t most_scales_at_once = 16;
  unsigned* scale_counters(cudaStream_t stream);

 private:
  Device device_;
  View workspace_;
  OpContextOptions options_;
  View counters_;                      // i32 [most streams, most scales, 2], zero between kernels: the end of the workspace
  std::vector<cudaStream_t> counted_;  // streams in the order of their counters

 public:
  MatmulPlans matmul;
  CudnnAttention attention;
};

// The CUDA context behind `context`; InternalError if it belongs to the host.
CudaOpContext& cuda_context(OpContext& context);

}  // namespace plait::ops::cuda
