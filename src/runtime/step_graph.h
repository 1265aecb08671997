// A training step as one launch: what it needs to be a CUDA graph (runtime/cuda_graph.h).
//
// Launches of a small model's step take the host longer than the step takes the device. A graph has nothing in it that varies
// from step to step, so all of that comes from memory at fixed addresses: settings (ops/adamw.h), batches (StagedBatches), and
// how far the streams have got (add_on_stream). Addresses and timed events are those of a step's slot, so each slot has a graph
// of its own. A graph runs when everything before it on its stream has run: steps do not overlap at their ends.
//
// Links have no place in it: their counters tell each message from the one before by values that go on from step to step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/stream.h"
#include "runtime/step_inputs.h"

namespace plait::runtime {

// Adds to a counter in pinned host memory that only this stream writes. In a graph, which would write the same value in every
// launch, this is what write_value is elsewhere. CUDA only.
void add_on_stream(StreamRef stream, std::uint32_t* counter, std::uint32_t count);

// The micro-batches of one step at addresses that stay: what a graph copies from. It hands them out in order.
class StagedBatches final : public BatchSource {
 public:
  // `memory`: pinned, bytes() of it; no launch that reads it is under way when fill is called. `tensor_bytes`: of tokens, as of
  // targets and starts.
  StagedBatches(std::byte* memory, std::size_t micro_batches, std::size_t tensor_bytes, bool has_starts);

  std::size_t bytes() const { return micro_batches_ * tensors_ * tensor_bytes_; }
  // Takes the step's micro-batches from `batches`, which may make the host wait, and gives each back at once; `idle`: a stream
  // without work.
  void fill(BatchSource& batches, StreamRef idle);
  HostBatch next() override;
  void release(StreamRef) override {}

 private:
  std::byte* tensor(std::size_t micro_batch, std::size_t which) const {
    return memory_ + (micro_batch * tensors_ + which) * tensor_bytes_;
  }
  std::byte* memory_;
  std::size_t micro_batches_, tensor_bytes_, tensors_;
  std::size_t next_ = 0;
};

}  // namespace plait::runtime
