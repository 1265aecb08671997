// What a step gets from outside.
#pragma once

#include <cstdint>

#include "core/stream.h"

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

// Optimizer settings of one step; `update` counts from 1.
struct UpdateSettings {
  std::int64_t update = 1;
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f, clip = 1.0f;
};

struct StepInputs {
  BatchSource& batches;
  UpdateSettings settings = {};
  bool add_losses = false;  // an evaluation's, to those that are there
};

}  // namespace plait::runtime
