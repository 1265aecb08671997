// What a step gets from outside.
#pragma once

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

using UpdateSettings = ops::UpdateSettings;  // of one step

struct StepInputs {
  BatchSource& batches;
  const ops::UpdateCoefficients* update = nullptr;  // of a program that updates: pinned, read when its stream comes to it
  bool add_losses = false;                          // an evaluation's, to those that are there
};

}  // namespace plait::runtime
