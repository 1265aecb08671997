// The data path as an interpreter's BatchSource.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "parallel/interpreter.h"
#include "train/data/batch_prefetcher.h"

namespace plait::train {

BatchShape batch_shape(const parallel::RankPlan& plan);

// Pinned buffers for `count` micro-batches of a plan.
class HostBatchRing {
 public:
  HostBatchRing(DeviceMemory& memory, const parallel::RankPlan& plan, std::size_t count);
  const std::vector<HostBatchMemory>& slots() const { return slots_; }

 private:
  std::vector<Buffer> buffers_;
  std::vector<HostBatchMemory> slots_;
};

// The training split, prefetched, from `first_step` to `last_step`.
class TrainingBatches final : public parallel::BatchSource {
 public:
  TrainingBatches(DeviceMemory& memory, const parallel::RankPlan& plan, std::shared_ptr<const Dataset> dataset,
                  std::int64_t first_step, std::int64_t last_step);
  parallel::HostBatch next() override;
  void release(StreamRef stream) override { prefetcher_.release(stream); }
  double stalled_ms() const { return prefetcher_.stalled_ms(); }

 private:
  HostBatchRing ring_;
  BatchPrefetcher prefetcher_;
};

// One evaluation over the validation split: `batches` global batches.
class ValidationBatches final : public parallel::BatchSource {
 public:
  ValidationBatches(DeviceMemory& memory, const parallel::RankPlan& plan, std::shared_ptr<const Dataset> dataset,
                    std::int64_t batches);
  void rewind() { next_ = 0; }
  parallel::HostBatch next() override;
  void release(StreamRef stream) override;
  std::int64_t rounds() const;  // micro-batches of one evaluation on this rank

 private:
  std::shared_ptr<const Dataset> dataset_;
  BatchShape shape_;
  std::int64_t batches_;
  HostBatchRing ring_;
  std::vector<Event> copied_;  // of each slot
  std::int64_t next_ = 0;
};

}  // namespace plait::train
