// What is enqueued on streams, captured once and launched again and again: a CUDA graph.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/stream.h"

namespace plait::runtime {

class CudaGraph {
 public:
  // Calls `issue`, which enqueues work on `origin` and `others`, whose companions take part too. Nothing of it runs, and all of
  // it is ordered by events that `issue` records first. What is called meanwhile on this thread may not allocate, and wait for
  // nothing. The streams may have work; the graph knows nothing of it. DeviceError, OutOfMemoryError, and what `issue` throws.
  CudaGraph(StreamRef origin, const std::vector<StreamRef>& others, const std::function<void()>& issue);
  CudaGraph(CudaGraph&&) noexcept;
  ~CudaGraph();  // no launch of it may be running

  // It runs behind what is on the stream and behind its own launches before. Counts as so many calls (most_enqueued).
  void launch(StreamRef stream, std::size_t calls = 1) const;
  std::size_t nodes() const;

 private:
  struct Executable;
  std::unique_ptr<Executable> executable_;
};

}  // namespace plait::runtime
