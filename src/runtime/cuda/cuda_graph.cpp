#include "runtime/cuda_graph.h"

#include <cuda_runtime_api.h>

#include "core/cuda_check.h"
#include "core/error.h"

namespace plait::runtime {
namespace {

cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream.native()); }

bool is_captured(StreamRef stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

struct Graph {
  cudaGraph_t graph = nullptr;
  ~Graph() {
    if (graph) static_cast<void>(cudaGraphDestroy(graph));
  }
};

}  // namespace

struct CudaGraph::Executable {
  cudaGraphExec_t graph = nullptr;
  std::size_t nodes = 0;
  ~Executable() {
    if (graph) static_cast<void>(cudaGraphExecDestroy(graph));
  }
};

CudaGraph::CudaGraph(StreamRef origin, const std::vector<StreamRef>& others, const std::function<void()>& issue)
    : executable_(std::make_unique<Executable>()) {
  Event passing(origin.device());  // each record is waited for before the next
  Graph captured;
  // Thread-local capture: calls of other threads of this process (ranks, prefetching, watchdogs) do not disturb it. A call of
  // this thread that would not be in the graph is an error.
  check(cudaStreamBeginCapture(native(origin), cudaStreamCaptureModeThreadLocal));
  try {
    origin.record(passing);
    for (const StreamRef s : others) s.wait(passing);
    issue();
    const auto join = [&](StreamRef s) {
      s.record(passing);
      origin.wait(passing);
    };
    const auto join_companion = [&](StreamRef s) {
      if (const StreamRef companion = s.companion(); companion && is_captured(companion)) join(companion);
    };
    for (const StreamRef s : others) {
      join(s);
      join_companion(s);
    }
    join_companion(origin);
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(native(origin), &captured.graph));
    static_cast<void>(cudaGetLastError());  // clears the error that is being thrown
    throw;
  }
  check(cudaStreamEndCapture(native(origin), &captured.graph));
  check(cudaGraphGetNodes(captured.graph, nullptr, &executable_->nodes));
  // Nodes keep their own priorities, as on the streams: communication goes first.
  const cudaError_t status =
      cudaGraphInstantiateWithFlags(&executable_->graph, captured.graph, cudaGraphInstantiateFlagUseNodePriority);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw OutOfMemoryError(to_string(origin.device()) + ": out of memory for the CUDA graph; train.graph=off needs none of it");
  }
  check(status);
  check(cudaGraphUpload(executable_->graph, native(origin)));  // so that no launch allocates
}

CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph::~CudaGraph() = default;

std::size_t CudaGraph::nodes() const { return executable_->nodes; }

void CudaGraph::launch(StreamRef stream, std::size_t calls) const {
  for (std::size_t others = 1; others < calls; ++others) static_cast<void>(native(stream));  // native() makes room for one call
  check(cudaGraphLaunch(executable_->graph, native(stream)));
}

}  // namespace plait::runtime
