// What a step gets from outside: its micro-batches and settings, and who looks on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/stream.h"
#include "ops/adamw.h"

namespace plait::runtime {

// Tokens and targets of one micro-batch in pinned host memory, i32, [rows] each; and where documents are separate, `starts`
// (model::Batch).
struct HostBatch {
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
  const std::int32_t* starts = nullptr;
};

// Where micro-batches come from, in program order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual HostBatch next() = 0;
  // The batch of the last next() may be overwritten once everything enqueued on `stream` so far has run.
  virtual void release(StreamRef stream) = 0;
};

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

using UpdateSettings = ops::UpdateSettings;  // of one step

struct StepInputs {
  BatchSource& batches;
  const ops::UpdateCoefficients* update = nullptr;  // of a program that updates: pinned, read when its stream comes to it
  bool add_losses = false;                          // an evaluation's, to those that are there
};

// Gets told when the instructions of a program are issued to their streams, and may put events there.
// For each instruction in order, on the issuing thread: waiting, started and done are called before its waits are enqueued,
// between waits and work, and after the work. This base class does nothing.
class IssueObserver {
 public:
  virtual ~IssueObserver() = default;
  virtual void waiting(int /*instruction*/, StreamRef /*stream*/) {}
  virtual void started(int /*instruction*/, StreamRef /*stream*/) {}
  // Called where observes_end says so, with the stream's companion (StreamRef::aside), which runs behind the instruction.
  virtual void done(int /*instruction*/, StreamRef /*aside*/) {}
  virtual bool observes_end(int /*instruction*/) const { return false; }
  // Whether every kernel is launched by itself, so that those who record kernels find each on its instruction's stream.
  virtual bool observes_kernels() const { return false; }
  // Of a receive: the event to record when its sender is ready. nullptr: none.
  virtual Event* ready(int /*instruction*/) { return nullptr; }
};

}  // namespace plait::runtime
