#include "data/batch_prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "core/error.h"

namespace plait::data {
namespace {

using namespace std::chrono_literals;

// Tokens that tell where they come from; slow or failing where a test asks.
class Traced final : public Dataset {
 public:
  explicit Traced(std::chrono::milliseconds delay = 0ms, std::int64_t failing_step = -1)
      : Dataset(4), delay_(delay), failing_step_(failing_step) {}
  std::int64_t train_tokens() const override { return 0; }
  std::int64_t validation_tokens() const override { return 0; }
  SampleOrder sample_order() const override { return {}; }
  std::vector<SourceUse> sources_used(std::int64_t) const override { return {}; }
  void train_sample(std::int64_t step, std::int64_t sample, const SampleSpans& out) const override {
    if (step == failing_step_) throw ConfigError("a shard is damaged");
    std::this_thread::sleep_for(delay_);
    for (std::size_t i = 0; i < out.tokens.size(); ++i) {
      out.tokens[i] = token(step, sample, i);
      out.targets[i] = token(step, sample, i + 1);
    }
  }
  void validation_sample(std::int64_t, std::int64_t, const SampleSpans&) const override {}

  static std::int32_t token(std::int64_t step, std::int64_t sample, std::size_t i) {
    return static_cast<std::int32_t>(step * 1000 + sample * 10 + static_cast<std::int64_t>(i));
  }

 private:
  std::chrono::milliseconds delay_;
  std::int64_t failing_step_;
};

class Ring {
 public:
  Ring(int buffers, std::int64_t micro_batch)
      : storage_(static_cast<std::size_t>(buffers), std::vector<std::int32_t>(static_cast<std::size_t>(micro_batch * 8))) {
    for (auto& buffer : storage_) {
      memory_.push_back({View(buffer.data(), DType::i32, {micro_batch, 4}),
                         View(buffer.data() + micro_batch * 4, DType::i32, {micro_batch, 4})});
    }
  }
  const std::vector<HostBatchMemory>& memory() const { return memory_; }

 private:
  std::vector<std::vector<std::int32_t>> storage_;
  std::vector<HostBatchMemory> memory_;
};

TEST(Prefetcher, DeliversTheSamplesOfItsRankInOrder) {
  const BatchShape shape{2, 3, 4, 1};
  Ring ring(3, 2);
  Stream stream{Device{}};
  BatchPrefetcher prefetcher(std::make_shared<Traced>(), shape, 5, 7, ring.memory(), Device{});
  for (std::int64_t step = 5; step <= 7; ++step) {
    for (std::int64_t m = 0; m < 3; ++m) {
      const HostBatch& batch = prefetcher.next();
      EXPECT_EQ(batch.step, step);
      EXPECT_EQ(batch.micro_batch, m);
      for (std::int64_t i = 0; i < 2; ++i) {
        const std::int64_t sample = m * 8 + 2 + i;
        for (std::int64_t k = 0; k < 4; ++k) {
          EXPECT_EQ(batch.tokens.as<std::int32_t>()[i * 4 + k], Traced::token(step, sample, static_cast<std::size_t>(k)));
          EXPECT_EQ(batch.targets.as<std::int32_t>()[i * 4 + k], Traced::token(step, sample, static_cast<std::size_t>(k) + 1));
        }
      }
      prefetcher.release(stream);
    }
  }
  EXPECT_THROW(prefetcher.next(), InternalError) << "past the last step";
  EXPECT_THROW(prefetcher.release(stream), InternalError);
}

// A slow device: the copy out of a buffer starts long after the training thread has gone on. ThreadSanitizer sees a buffer
// that is refilled too early as a race; without it the copied tokens are wrong.
TEST(Prefetcher, RefillsABufferOnlyWhenTheDeviceIsDoneWithIt) {
  constexpr int batches = 20;
  Ring ring(2, 1);
  std::vector<std::int32_t> copied(batches * 4);
  Stream stream{Device{}};
  {
    BatchPrefetcher prefetcher(std::make_shared<Traced>(), BatchShape{}, 1, batches, ring.memory(), Device{});
    for (int n = 0; n < batches; ++n) {
      const HostBatch& batch = prefetcher.next();
      stream.ref().enqueue_host([] { std::this_thread::sleep_for(3ms); });
      stream.ref().copy(copied.data() + n * 4, batch.tokens.data, 4 * sizeof(std::int32_t));
      prefetcher.release(stream);
    }
    stream.ref().synchronize();
  }
  for (int n = 0; n < batches; ++n) {
    for (int k = 0; k < 4; ++k)
      EXPECT_EQ(copied[static_cast<std::size_t>(n * 4 + k)], Traced::token(n + 1, 0, static_cast<std::size_t>(k)));
  }
}

TEST(Prefetcher, CountsTheTimeTheTrainingThreadWaits) {
  Stream stream{Device{}};
  Ring slow_ring(2, 1), fast_ring(4, 1);
  const auto start = std::chrono::steady_clock::now();
  BatchPrefetcher slow(std::make_shared<Traced>(20ms), BatchShape{}, 1, 5, slow_ring.memory(), Device{});
  for (int n = 0; n < 5; ++n) {
    slow.next();
    slow.release(stream);
  }
  const std::chrono::duration<double, std::milli> whole = std::chrono::steady_clock::now() - start;
  EXPECT_GT(slow.stalled_ms(), 0.0);
  EXPECT_LE(slow.stalled_ms(), whole.count());

  BatchPrefetcher ahead(std::make_shared<Traced>(), BatchShape{}, 1, 4, fast_ring.memory(), Device{});
  // Until all four are there, however busy this machine is.
  while (ahead.ready() < 4) std::this_thread::sleep_for(1ms);
  for (int n = 0; n < 4; ++n) {
    ahead.next();
    ahead.release(stream);
  }
  EXPECT_EQ(ahead.stalled_ms(), 0.0);
}

TEST(Prefetcher, SurfacesAnErrorAtTheBatchItBelongsTo) {
  Ring ring(4, 1);
  Stream stream{Device{}};
  BatchPrefetcher prefetcher(std::make_shared<Traced>(0ms, 3), BatchShape{}, 1, 10, ring.memory(), Device{});
  for (int n = 1; n <= 2; ++n) {
    EXPECT_EQ(prefetcher.next().step, n);
    prefetcher.release(stream);
  }
  EXPECT_THROW(prefetcher.next(), ConfigError);
  EXPECT_THROW(prefetcher.next(), ConfigError) << "and again";
}

TEST(Prefetcher, RefusesToHandOutMoreThanItsRing) {
  Ring ring(2, 1);
  BatchPrefetcher prefetcher(std::make_shared<Traced>(), BatchShape{}, 1, 10, ring.memory(), Device{});
  prefetcher.next();
  prefetcher.next();
  EXPECT_THROW(prefetcher.next(), InternalError) << "it would wait for itself";
}

TEST(Prefetcher, StopsWhileItsThreadWaits) {
  for (int n = 0; n < 50; ++n) {
    Ring ring(2, 1);
    BatchPrefetcher prefetcher(std::make_shared<Traced>(), BatchShape{}, 1, 1000, ring.memory(), Device{});
    if (n % 2 == 0) prefetcher.next();
  }
}

TEST(Prefetcher, RefusesMemoryOfTheWrongShape) {
  Ring ring(2, 3);
  EXPECT_THROW(BatchPrefetcher(std::make_shared<Traced>(), BatchShape{2, 1, 1, 0}, 1, 1, ring.memory(), Device{}),
               InternalError);
  Ring single(1, 1);
  EXPECT_THROW(BatchPrefetcher(std::make_shared<Traced>(), BatchShape{}, 1, 1, single.memory(), Device{}), InternalError);
}

}  // namespace
}  // namespace plait::data
