#include "train/batch_sources.h"

namespace plait::train {
namespace {

// The number of micro-batches by which the data thread may be ahead.
constexpr std::size_t prefetch_depth = 4;

runtime::HostBatch pointers(const data::HostBatchMemory& memory) {
  return {memory.tokens.as<std::int32_t>(), memory.targets.as<std::int32_t>(),
          memory.starts ? memory.starts.as<std::int32_t>() : nullptr};
}

}  // namespace

data::BatchShape batch_shape(const parallel::RankPlan& plan) {
  return {.micro_batch = plan.sizes.micro_batch.batch,
          .micro_batches = plan.micro_batches,
          .data_size = plan.layout.size(batch_axes),
          .data_rank = plan.layout.coordinate(plan.rank, batch_axes)};
}

HostBatchRing::HostBatchRing(DeviceMemory& memory, const parallel::RankPlan& plan, std::size_t count) {
  const Shape shape{plan.sizes.micro_batch.batch, plan.sizes.micro_batch.sequence};
  const auto bytes = static_cast<std::size_t>(shape.elements()) * sizeof(std::int32_t);
  const auto tensor = [&] {
    buffers_.push_back(memory.allocate(bytes, MemoryKind::pinned_host));
    return View(buffers_.back().data(), DType::i32, shape);
  };
  for (std::size_t i = 0; i < count; ++i) {
    data::HostBatchMemory& slot = slots_.emplace_back();
    slot.tokens = tensor();
    slot.targets = tensor();
    if (plan.sizes.micro_batch.documents == Documents::separate) slot.starts = tensor();
  }
}

TrainingBatches::TrainingBatches(DeviceMemory& memory, const parallel::RankPlan& plan,
                                 std::shared_ptr<const data::Dataset> dataset, std::int64_t first_step, std::int64_t last_step)
    : ring_(memory, plan, prefetch_depth),
      prefetcher_(std::move(dataset), batch_shape(plan), first_step, last_step, ring_.slots(), memory.device()) {}

runtime::HostBatch TrainingBatches::next() { return pointers(prefetcher_.next()); }

FilledBatches::FilledBatches(DeviceMemory& memory, const parallel::RankPlan& plan, Fill fill)
    : fill_(std::move(fill)), ring_(memory, plan, 2) {
  for (std::size_t i = 0; i < ring_.slots().size(); ++i) copied_.emplace_back(memory.device());
}

runtime::HostBatch FilledBatches::next() {
  const auto slot = static_cast<std::size_t>(next_) % ring_.slots().size();
  copied_[slot].synchronize();
  fill_(next_, ring_.slots()[slot]);
  ++next_;
  return pointers(ring_.slots()[slot]);
}

void FilledBatches::release(StreamRef stream) {
  stream.record(copied_[static_cast<std::size_t>(next_ - 1) % ring_.slots().size()]);
}

ValidationBatches::ValidationBatches(DeviceMemory& memory, const parallel::RankPlan& plan,
                                     std::shared_ptr<const data::Dataset> dataset, std::int64_t batches)
    : FilledBatches(memory, plan,
                    [dataset = std::move(dataset), shape = batch_shape(plan), batches](std::int64_t n, const auto& slot) {
                      data::fill_validation_batch(*dataset, shape, batches, n, slot);
                    }),
      rounds_(batches * plan.micro_batches) {}

}  // namespace plait::train
