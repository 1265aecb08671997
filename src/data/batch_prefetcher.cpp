#include "data/batch_prefetcher.h"

#include <chrono>

#include "core/error.h"

namespace plait::data {
namespace {

void check_memory(const Dataset& dataset, const BatchShape& shape, const HostBatchMemory& memory) {
  const Shape expected{shape.micro_batch, dataset.sequence_length()};
  require(memory.tokens.shape == expected && memory.targets.shape == expected &&
              (!memory.starts || memory.starts.shape == expected),
          "batch memory must be [micro_batch, sequence_length]: " + expected.to_string());
}

// Writes sample i of a micro-batch into row i.
template <typename Read>
void fill_rows(const HostBatchMemory& memory, Read read) {
  for (std::int64_t i = 0; i < memory.tokens.shape[0]; ++i) {
    const auto row = [&](const View& of) {
      return of ? std::span(of.rows(i, 1).as<std::int32_t>(), static_cast<std::size_t>(of.shape[1]))
                : std::span<std::int32_t>();
    };
    read(i, SampleSpans{row(memory.tokens), row(memory.targets), row(memory.starts)});
  }
}

}  // namespace

void fill_validation_batch(const Dataset& dataset, const BatchShape& shape, std::int64_t batches, std::int64_t micro_batch,
                           const HostBatchMemory& memory) {
  check_memory(dataset, shape, memory);
  const std::int64_t first = shape.first_sample(micro_batch);
  const std::int64_t count = batches * shape.global_batch();
  fill_rows(memory, [&](std::int64_t i, const SampleSpans& out) { dataset.validation_sample(first + i, count, out); });
}

BatchPrefetcher::BatchPrefetcher(std::shared_ptr<const Dataset> dataset, const BatchShape& shape, std::int64_t first_step,
                                 std::int64_t last_step, std::vector<HostBatchMemory> ring, Device device)
    : dataset_(std::move(dataset)),
      shape_(shape),
      first_step_(first_step),
      batches_((last_step - first_step + 1) * shape.micro_batches),
      device_(device) {
  require(ring.size() >= 2, "BatchPrefetcher: a ring has two or more buffers");
  require(batches_ >= 0, "BatchPrefetcher: the last step is before the first");
  slots_.reserve(ring.size());
  for (const HostBatchMemory& memory : ring) {
    check_memory(*dataset_, shape_, memory);
    slots_.push_back({{memory}, Event(device_)});
  }
  thread_ = std::thread([this] { run(); });
}

BatchPrefetcher::~BatchPrefetcher() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchPrefetcher::run() {
  try {
    make_current(device_);
    const auto slots = static_cast<std::int64_t>(slots_.size());
    for (std::int64_t index = 0; index < batches_; ++index) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || index < released_ + slots; });
        if (stopping_) return;
      }
      Slot& slot = slots_[static_cast<std::size_t>(index % slots)];
      slot.free.synchronize();
      fill(slot, index);
      {
        std::lock_guard lock(mutex_);
        ++filled_;
      }
      changed_.notify_all();
    }
  } catch (...) {
    {
      std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

void BatchPrefetcher::fill(Slot& slot, std::int64_t index) const {
  HostBatch& batch = slot.batch;
  batch.step = first_step_ + index / shape_.micro_batches;
  batch.micro_batch = index % shape_.micro_batches;
  const std::int64_t first = shape_.first_sample(batch.micro_batch);
  fill_rows(batch, [&](std::int64_t i, const SampleSpans& out) { dataset_->train_sample(batch.step, first + i, out); });
}

std::int64_t BatchPrefetcher::ready() {
  std::lock_guard lock(mutex_);
  return filled_ - taken_;
}

const HostBatch& BatchPrefetcher::next() {
  std::unique_lock lock(mutex_);
  require(taken_ < batches_, "BatchPrefetcher::next: there are no more steps");
  require(taken_ - released_ < static_cast<std::int64_t>(slots_.size()), "BatchPrefetcher::next: release a batch first");
  const auto is_ready = [&] { return filled_ > taken_ || error_; };
  if (!is_ready()) {
    const auto start = std::chrono::steady_clock::now();
    changed_.wait(lock, is_ready);
    stalled_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  if (filled_ <= taken_) std::rethrow_exception(error_);
  const std::int64_t index = taken_++;
  return slots_[static_cast<std::size_t>(index % static_cast<std::int64_t>(slots_.size()))].batch;
}

void BatchPrefetcher::release(StreamRef stream) {
  {
    std::lock_guard lock(mutex_);
    require(released_ < taken_, "BatchPrefetcher::release: no batch is held");
    stream.record(slots_[static_cast<std::size_t>(released_ % static_cast<std::int64_t>(slots_.size()))].free);
    ++released_;
  }
  changed_.notify_all();
}

}  // namespace plait::data
