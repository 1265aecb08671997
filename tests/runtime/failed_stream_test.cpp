// The effect of a failed stream on a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/error_of.h"
#include "rank_threads.h"

namespace plait::runtime {
namespace {

// Leaves the first step alone, and fails within the second.
class FailingBatches final : public BatchSource {
 public:
  FailingBatches(BatchSource& batches, std::int64_t last_good) : batches_(batches), left_(last_good) {}
  HostBatch next() override { return batches_.next(); }
  void release(StreamRef stream) override {
    batches_.release(stream);
    if (left_-- == 0) stream.enqueue_host([] { throw CommError("the cable was cut"); });
  }

 private:
  BatchSource& batches_;
  std::int64_t left_;
};

// A failed stream drops its work and still comes to the end of the step, so that nobody waits for ever. Its losses are whatever
// memory happens to hold.
TEST(FailedStream, AStepItTookPartInHasNoResult) {
  Config config = small_job(2);
  config.parallel.size[Axis::data] = 1;
  int results = 0;
  const auto run = [&] {
    run_ranks(config, 1, DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches& good) {
      FailingBatches batches(good, interpreter.plan().micro_batches);
      for (std::int64_t step = 1; step <= 3; ++step) {
        interpreter.run_step(batches, {.update = step, .lr = 1e-3f});
        EXPECT_GT(interpreter.synchronize_result().loss, 0);
        ++results;
      }
    });
  };
  EXPECT_THAT(error_of<CommError>(run), testing::HasSubstr("the cable was cut"));
  EXPECT_EQ(results, 1);
}

}  // namespace
}  // namespace plait::runtime
