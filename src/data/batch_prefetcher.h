// Prepares a rank's micro-batches ahead of the training thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/stream.h"
#include "core/view.h"
#include "data/dataset.h"

namespace plait::data {

// Assigns the samples of a global batch to ranks. Micro-batch m of data-parallel rank r holds the samples
//   m * data_size * micro_batch + r * micro_batch + [0, micro_batch)
// so that the samples of a step are 0 .. global_batch - 1 under every layout.
struct BatchShape {
  std::int64_t micro_batch = 1;    // sequences
  std::int64_t micro_batches = 1;  // per step and rank (core/batch_split.h)
  std::int64_t data_size = 1;
  std::int64_t data_rank = 0;

  std::int64_t first_sample(std::int64_t micro_batch_index) const {
    return (micro_batch_index * data_size + data_rank) * micro_batch;
  }
  std::int64_t global_batch() const { return micro_batches * data_size * micro_batch; }
};

// Memory for one micro-batch, [micro_batch, sequence_length] of i32 each; pinned, so that a copy engine can read it. `starts`
// (SampleSpans) is given where documents are separate.
struct HostBatchMemory {
  View tokens, targets, starts = {};
};

struct HostBatch : HostBatchMemory {
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;  // index within the step
};

// Fills one micro-batch of an evaluation of `batches` global batches; `micro_batch` counts from 0 to
// batches * shape.micro_batches - 1 over the whole evaluation. Blocks the caller; nothing is prefetched.
void fill_validation_batch(const Dataset& dataset, const BatchShape& shape, std::int64_t batches, std::int64_t micro_batch,
                           const HostBatchMemory& memory);

// A thread that fills a ring of caller-owned buffers with the micro-batches of steps [first_step, last_step], in order.
// next() and release() belong to one thread, the training thread; it never waits for a device here.
class BatchPrefetcher {
 public:
  // `ring` (two or more buffers) must outlive the prefetcher, and so must the work that reads it.
  BatchPrefetcher(std::shared_ptr<const Dataset> dataset, const BatchShape& shape, std::int64_t first_step,
                  std::int64_t last_step, std::vector<HostBatchMemory> ring, Device device);
  BatchPrefetcher(const BatchPrefetcher&) = delete;
  BatchPrefetcher& operator=(const BatchPrefetcher&) = delete;
  ~BatchPrefetcher();  // waits for streams given to release()

  // The next micro-batch; waits only if the data thread is behind. Rethrows the data thread's exception. Valid until its
  // release(). InternalError past the last step, and when the caller holds every buffer of the ring.
  const HostBatch& next();

  // Call it when the copies out of the oldest batch not yet released are enqueued on `stream`: the buffer is refilled once
  // everything enqueued there so far has run. The data thread waits for that.
  void release(StreamRef stream);

  double stalled_ms() const { return stalled_ms_; }  // time next() has waited so far
  std::int64_t ready();                              // batches that next() would hand out now without waiting

 private:
  struct Slot {
    HostBatch batch;
    Event free;  // the device is done with the buffer
  };

  void run();
  void fill(Slot& slot, std::int64_t index) const;

  const std::shared_ptr<const Dataset> dataset_;
  const BatchShape shape_;
  const std::int64_t first_step_;
  const std::int64_t batches_;  // in total
  const Device device_;
  std::vector<Slot> slots_;
  double stalled_ms_ = 0;

  // Batch n lives in slot n % slots. released_ <= taken_ <= filled_ <= released_ + slots.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_ = 0;    // batches the data thread has written
  std::int64_t taken_ = 0;     // batches handed out by next()
  std::int64_t released_ = 0;  // batches given back by release()
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: starts when everything else is ready
};

}  // namespace plait::data
