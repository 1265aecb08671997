#include "ops/cuda/op_context.h"

#include "core/error.h"
#include "ops/implementations.h"

namespace plait::ops::cuda {
CudaOpContext::CudaOpContext(Device device, View workspace, const OpContextOptions& options)
    : device_(device),
      workspace_(workspace),
      options_(options),
      matmul(device, workspace, options),
      attention(options.deterministic) {}

std::vector<std::string> CudaOpContext::choices() const { return matmul.choices(); }

int CudaOpContext::adopt_choices(const std::vector<std::string>& choices) {
  int unusable = 0;
  for (const std::string& line : choices) unusable += matmul.adopt_choice(line) ? 0 : 1;
  return unusable;
}

CudaOpContext& cuda_context(OpContext& context) {
  auto* cuda = dynamic_cast<CudaOpContext*>(&context);
  require(cuda != nullptr, "an op on a CUDA stream was given a host context");
  return *cuda;
}

std::unique_ptr<OpContext> make_op_context(Device device, View workspace, const OpContextOptions& options) {
  make_current(device);
  return std::make_unique<CudaOpContext>(device, workspace, options);
}

}  // namespace plait::ops::cuda
