#include "ops/cuda/op_context.h"

#include <algorithm>
#include <cstddef>

#include "core/cuda_check.h"
#include "core/error.h"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

constexpr std::int64_t most_streams = 32;
constexpr std::int64_t counters_of_stream = CudaOpContext::most_scales_at_once * 2;
constexpr std::size_t counter_bytes = most_streams * counters_of_stream * sizeof(unsigned);

View without_counters(const View& workspace) {
  return {workspace.data, DType::u8, {static_cast<std::int64_t>((workspace.bytes() - counter_bytes) / 256 * 256)}};
}

}  // namespace

CudaOpContext::CudaOpContext(Device device, View workspace, const OpContextOptions& options)
    : device_(device),
      workspace_(without_counters(workspace)),
      options_(options),
      counters_(static_cast<std::byte*>(workspace_.data) + workspace_.bytes(), DType::i32, {most_streams, counters_of_stream}),
      matmul(device, workspace_, options),
      attention(options.deterministic) {
  check(cudaMemset(counters_.data, 0, counters_.bytes()));
  check(cudaStreamSynchronize(nullptr));  // the streams that run kernels do not wait for the null stream
}

unsigned* CudaOpContext::scale_counters(cudaStream_t stream) {
  const auto known = std::find(counted_.begin(), counted_.end(), stream);
  const std::int64_t at = known - counted_.begin();
  if (known == counted_.end()) {
    require(at < most_streams, "an op context counts for 32 streams at most");
    counted_.push_back(stream);
  }
  return static_cast<unsigned*>(counters_.data) + counters_of_stream * at;
}

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
