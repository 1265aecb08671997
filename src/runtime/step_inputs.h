// The inputs of a step from outside: its micro-batches and settings, and its observers.
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

// A source of micro-batches, in program order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual HostBatch next() = 0;
  // The batch of the last next() may be overwritten once everything enqueued on `stream` so far has run.
  virtual void release(StreamRef stream) = 0;
};

// The micro-batches of one step at fixed addresses, from which a graph copies. It hands them out in order.
class StagedBatches final : public BatchSource {
 public:
  // `memory`: pinned, of bytes(); no launch that reads it may be under way when fill is called. `tensor_bytes`: the size of
  // tokens, and of targets and starts.
  StagedBatches(std::byte* memory, std::size_t micro_batches, std::size_t tensor_bytes, bool has_starts);

  std::size_t bytes() const { return micro_batches_ * tensors_ * tensor_bytes_; }
  // Takes the step's micro-batches from `batches`, which may make the host wait, and releases each at once. `idle`: a stream
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

using UpdateSettings = ops::UpdateSettings;  // for one step

struct StepInputs {
  BatchSource& batches;
  const ops::UpdateCoefficients* update = nullptr;  // for a program that updates: pinned, read when its stream comes to it
  bool add_losses = false;                          // an evaluation adds its losses to those that are there
};

// Is told when the instructions of a program are issued to their streams, and may put events there. For each instruction in
// order, on the issuing thread: waiting() is called before its waits are enqueued, started() between waits and work, and done()
// after the work. This base class does nothing.
class IssueObserver {
 public:
  virtual ~IssueObserver() = default;
  virtual void waiting(int /*instruction*/, StreamRef /*stream*/) {}
  virtual void started(int /*instruction*/, StreamRef /*stream*/) {}
  // Called if observes_end says so, with the stream's companion (StreamRef::aside), which runs behind the instruction.
  virtual void done(int /*instruction*/, StreamRef /*aside*/) {}
  virtual bool observes_end(int /*instruction*/) const { return false; }
  // True if every kernel has to be launched by itself, so that records of kernels find each on its instruction's stream.
  virtual bool observes_kernels() const { return false; }
  // For a receive: the event to record when its sender is ready. nullptr: none.
  virtual Event* ready(int /*instruction*/) { return nullptr; }
};

}  // namespace plait::runtime
