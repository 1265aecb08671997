#include "core/cuda_check.h"
#include "runtime/cuda_graph.h"

namespace plait::runtime {
namespace {

__global__ void add_kernel(volatile std::uint32_t* counter, std::uint32_t count) { *counter = *counter + count; }

}  // namespace

void add_on_stream(StreamRef stream, std::uint32_t* counter, std::uint32_t count) {
  add_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream.native())>>>(counter, count);
  check(cudaGetLastError());
}

}  // namespace plait::runtime
