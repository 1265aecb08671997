// Implements an interpreter's BatchSource with the data path.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "data/batch_prefetcher.h"
#include "runtime/interpreter.h"

namespace plait::train {

data::BatchShape batch_shape(const parallel::RankPlan& plan);

// Pinned buffers for `count` micro-batches of a plan.
class HostBatchRing {
 public:
  HostBatchRing(DeviceMemory& memory, const parallel::RankPlan& plan, std::size_t count);
  const std::vector<data::HostBatchMemory>& slots() const { return slots_; }

 private:
  std::vector<Buffer> buffers_;
  std::vector<data::HostBatchMemory> slots_;
};

// The training split, prefetched, from `first_step` to `last_step`.
class TrainingBatches final : public runtime::BatchSource {
 public:
  TrainingBatches(DeviceMemory& memory, const parallel::RankPlan& plan, std::shared_ptr<const data::Dataset> dataset,
                  std::int64_t first_step, std::int64_t last_step);
  runtime::HostBatch next() override;
  void release(StreamRef stream) override { prefetcher_.release(stream); }
  double stalled_ms() const { return prefetcher_.stalled_ms(); }

 private:
  HostBatchRing ring_;
  data::BatchPrefetcher prefetcher_;
};

// Micro-batches that `fill` writes on demand: it writes micro-batch n (from 0) of this rank.
class FilledBatches : public runtime::BatchSource {
 public:
  using Fill = std::function<void(std::int64_t n, const data::HostBatchMemory&)>;
  FilledBatches(DeviceMemory& memory, const parallel::RankPlan& plan, Fill fill);
  void rewind() { next_ = 0; }
  runtime::HostBatch next() override;
  void release(StreamRef stream) override;

 private:
  Fill fill_;
  HostBatchRing ring_;
  std::vector<Event> copied_;  // of each slot
  std::int64_t next_ = 0;
};

// One evaluation over the validation split: `batches` global batches.
class ValidationBatches final : public FilledBatches {
 public:
  ValidationBatches(DeviceMemory& memory, const parallel::RankPlan& plan, std::shared_ptr<const data::Dataset> dataset,
                    std::int64_t batches);
  std::int64_t rounds() const { return rounds_; }  // micro-batches of one evaluation on this rank

 private:
  std::int64_t rounds_;
};

}  // namespace plait::train
