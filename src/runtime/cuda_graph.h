// CUDA graphs: work that is enqueued on streams, captured once and launched again and again.
//
// A graph makes a training step one launch: the launches of a small model's step take the host longer than the step takes the
// device. A graph has nothing in it that varies from step to step, so everything that does comes from memory at fixed
// addresses: settings (ops/adamw.h), batches (StagedBatches), and the progress of streams (add_on_stream). Addresses and timed
// events are those of a step's slot, so each slot has a graph of its own. A graph runs when everything before it on its stream
// has run: steps do not overlap at their ends. Links cannot be in a graph: their counters tell each message from the one before
// by values that go on from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/stream.h"

namespace plait::runtime {

class CudaGraph {
 public:
  // Calls `issue`, which enqueues work on `origin` and `others`; their companions take part too. None of the work runs, and all
  // of it must be ordered by events that `issue` records first. Meanwhile, calls on this thread may not allocate, and may wait
  // for nothing. The streams may have other work; the graph knows nothing of it. Throws DeviceError, OutOfMemoryError, and what
  // `issue` throws.
  CudaGraph(StreamRef origin, const std::vector<StreamRef>& others, const std::function<void()>& issue);
  CudaGraph(CudaGraph&&) noexcept;
  ~CudaGraph();  // no launch of it may be running

  // The graph runs behind what is on the stream and behind its own earlier launches. The launch counts as so many calls
  // (most_enqueued).
  void launch(StreamRef stream, std::size_t calls = 1) const;
  std::size_t nodes() const;

 private:
  struct Executable;
  std::unique_ptr<Executable> executable_;
};

// Adds to a counter in pinned host memory that only this stream writes. Graphs use it in place of write_value, which would
// write the same value in every launch. CUDA only.
void add_on_stream(StreamRef stream, std::uint32_t* counter, std::uint32_t count);

}  // namespace plait::runtime
