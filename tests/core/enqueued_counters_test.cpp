#include "core/enqueued_counters.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace plait {
namespace {

std::shared_ptr<const Event> some_event() { return std::make_shared<Event>(Device{}); }

TEST(EnqueuedCounters, BeginAtZero) {
  EnqueuedCounters counters;
  const std::uint32_t counter = 0;
  EXPECT_EQ(counters.await(&counter, 0), nullptr);
  EXPECT_EQ(counters.await(&counter, 0u - 2),
            nullptr);  // as a mailbox waits for places of which the first round finds all free
}

TEST(EnqueuedCounters, GiveTheEventOfTheLatestWrite) {
  EnqueuedCounters counters;
  const std::uint32_t counter = 0, other = 0;
  const auto first = some_event(), second = some_event();
  counters.write(&counter, 1, first);
  EXPECT_EQ(counters.await(&counter, 1), first);
  counters.write(&counter, 2, second);
  EXPECT_EQ(counters.await(&counter, 1), second);
  EXPECT_EQ(counters.await(&counter, 2), second);
  EXPECT_EQ(counters.await(&other, 0), nullptr);
}

TEST(EnqueuedCounters, BeginAnewWithTheirMemory) {
  EnqueuedCounters counters;
  const std::vector<std::uint32_t> memory(4);
  for (const std::uint32_t& counter : memory) counters.write(&counter, 7, some_event());
  counters.begin(&memory[1], 2 * sizeof(std::uint32_t));
  EXPECT_NE(counters.await(&memory[0], 7), nullptr);
  EXPECT_EQ(counters.await(&memory[1], 0), nullptr);
  EXPECT_EQ(counters.await(&memory[2], 0), nullptr);
  EXPECT_NE(counters.await(&memory[3], 7), nullptr);
}

TEST(EnqueuedCounters, BlockUntilTheWriteIsEnqueued) {
  EnqueuedCounters counters;
  const std::uint32_t counter = 0xffffffff;
  const auto before = some_event(), written = some_event();
  counters.write(&counter, 0xffffffff, before);
  std::atomic<bool> passed{false};
  std::jthread waiting([&] {
    EXPECT_EQ(counters.await(&counter, 1), written);  // past the end of 32 bits
    passed = true;
  });
  counters.write(&counter, 0, some_event());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(passed);
  counters.write(&counter, 1, written);
}

// Two threads that take turns, of which the first waits for what only the second writes.
TEST(EnqueuedCounters, AWaitGivesUpTheTurn) {
  EnqueuedCounters counters;
  const std::uint32_t counter = 0;
  std::mutex turns;
  std::atomic<bool> has_turn{false};
  int running = 0;  // by turns alone
  std::jthread first([&] {
    const Turn turn(turns);
    EXPECT_EQ(++running, 1);
    has_turn = true;
    --running;
    EXPECT_NE(counters.await(&counter, 1), nullptr);
    EXPECT_EQ(++running, 1);
    --running;
  });
  while (!has_turn) std::this_thread::yield();
  const Turn turn(turns);
  EXPECT_EQ(++running, 1);
  counters.write(&counter, 1, some_event());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(running, 1);  // the first waits for its turn
  --running;
}

}  // namespace
}  // namespace plait
