// What core/stream.h promises, on the host and on CUDA with the same bodies.
#include "core/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/test_devices.h"

namespace plait {
namespace {

// Holds a stream at one point until open() is called; opens by itself when a test fails half-way, so that no stream hangs.
class Gate {
 public:
  ~Gate() { open(); }
  void hold(StreamRef stream) {
    stream.enqueue_host([opened = opened_] { opened.wait(); });
  }
  void open() {
    if (!std::exchange(is_open_, true)) promise_.set_value();
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
  bool is_open_ = false;
};

template <typename Where>
class StreamTest : public DeviceFixture<Where> {};
TYPED_TEST_SUITE_P(StreamTest);

TYPED_TEST_P(StreamTest, RunsInOrder) {
  Stream stream(this->device_);
  std::vector<int> order;
  for (int i = 0; i < 200; ++i) stream.ref().enqueue_host([&order, i] { order.push_back(i); });
  stream.ref().synchronize();
  ASSERT_EQ(order.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// Who fills a stream waits, and holds nothing meanwhile that another thread needs.
TYPED_TEST_P(StreamTest, HoldsNoMoreThanSoMuch) {
  Stream stream(this->device_);
  DeviceMemory memory(this->device_);
  const Buffer counter = memory.allocate(sizeof(std::uint32_t), MemoryKind::pinned_host);
  std::atomic<int> enqueued = 0;
  Gate gate;
  gate.hold(stream);
  std::jthread filler([&] {
    make_current(this->device_);
    for (int n = 1; n <= 4 * most_enqueued; ++n) {
      stream.ref().write_value(static_cast<std::uint32_t*>(counter.data()), static_cast<std::uint32_t>(n));
      enqueued = n;
    }
  });
  while (enqueued <= most_enqueued / 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for more to come, if it did
  EXPECT_LE(enqueued, most_enqueued);
  EXPECT_GT(memory_info(this->device_).total_bytes, 0U);
  gate.open();
  filler.join();
  stream.ref().synchronize();
  EXPECT_EQ(*static_cast<const std::uint32_t*>(counter.data()), 4U * most_enqueued);
}

TYPED_TEST_P(StreamTest, CountsInOrder) {
  Stream one(this->device_), two(this->device_);
  DeviceMemory memory(this->device_);
  const Buffer buffer = memory.allocate(4 * sizeof(std::uint32_t), MemoryKind::pinned_host);
  auto* const counters = static_cast<std::uint32_t*>(buffer.data());
  std::fill_n(counters, 4, 0U);
  using enum CounterOperation::Kind;
  const std::vector<CounterOperation> first{{write, counters, 5}, {wait, counters + 1, 7}, {write, counters + 2, 9}};
  one.ref().count(first);
  one.ref().count({});
  Event event(this->device_);
  one.ref().record(event);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(event.is_complete());
  const std::vector<CounterOperation> second{
      {wait, counters, 5}, {write, counters + 1, 7}, {wait, counters + 2, 9}, {write, counters + 3, 11}};
  two.ref().count(second);
  one.ref().synchronize();
  two.ref().synchronize();
  EXPECT_EQ((std::vector<std::uint32_t>(counters, counters + 4)), (std::vector<std::uint32_t>{5, 7, 9, 11}));
}

TYPED_TEST_P(StreamTest, DoesNotBlockTheCaller) {
  Stream stream(this->device_);
  Event event(this->device_);
  int value = 0;
  Gate gate;
  gate.hold(stream);
  stream.ref().enqueue_host([&] { value = 1; });
  stream.ref().record(event);
  EXPECT_FALSE(event.is_complete());  // reached only because nothing above waited for the gate
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.is_complete());
  EXPECT_EQ(value, 1);
}

TYPED_TEST_P(StreamTest, EventNeverRecordedIsComplete) {
  Stream stream(this->device_);
  Event event(this->device_);
  EXPECT_TRUE(event.is_complete());
  event.synchronize();
  stream.ref().wait(event);
  stream.ref().synchronize();
}

TYPED_TEST_P(StreamTest, WaitOrdersTwoStreams) {
  Stream producer(this->device_), consumer(this->device_);
  Event produced(this->device_), consumed(this->device_);
  int value = 0, seen = -1;
  Gate gate;
  gate.hold(producer);
  producer.ref().enqueue_host([&] { value = 42; });
  producer.ref().record(produced);
  consumer.ref().wait(produced);
  consumer.ref().enqueue_host([&] { seen = value; });
  consumer.ref().record(consumed);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(consumed.is_complete());
  gate.open();
  consumer.ref().synchronize();
  EXPECT_EQ(seen, 42);
}

TYPED_TEST_P(StreamTest, WaitBeforeTheFirstRecordDoesNotWait) {
  Stream producer(this->device_), consumer(this->device_);
  Event event(this->device_);
  Gate gate;
  consumer.ref().wait(event);
  gate.hold(producer);
  producer.ref().record(event);
  consumer.ref().synchronize();  // would hang if the wait meant a later record
  EXPECT_FALSE(event.is_complete());
  gate.open();
  producer.ref().synchronize();
  EXPECT_TRUE(event.is_complete());
}

TYPED_TEST_P(StreamTest, RecordingAgainMovesTheEventButNotEarlierWaits) {
  Stream producer(this->device_), early(this->device_), late(this->device_);
  Event event(this->device_), late_done(this->device_);
  Gate gate;
  int value = 1, seen_early = 0, seen_late = 0;
  producer.ref().record(event);
  early.ref().wait(event);
  early.ref().enqueue_host([&] { seen_early = 1; });
  gate.hold(producer);
  producer.ref().enqueue_host([&] { value = 2; });
  producer.ref().record(event);
  late.ref().wait(event);
  late.ref().enqueue_host([&] { seen_late = value; });
  late.ref().record(late_done);
  early.ref().synchronize();  // would hang if its wait had moved to the second record
  EXPECT_EQ(seen_early, 1);
  EXPECT_FALSE(event.is_complete());
  EXPECT_FALSE(late_done.is_complete());
  gate.open();
  late.ref().synchronize();
  EXPECT_EQ(seen_late, 2);
}

TYPED_TEST_P(StreamTest, ChainAcrossStreamsKeepsOneOrder) {
  constexpr int streams = 3, rounds = 60;
  std::vector<Stream> ring;
  std::vector<Event> done;
  for (int i = 0; i < streams; ++i) {
    ring.emplace_back(this->device_);
    done.emplace_back(this->device_);
  }
  std::vector<int> order;
  for (int step = 0; step < streams * rounds; ++step) {
    const auto self = static_cast<std::size_t>(step % streams);
    const auto before = static_cast<std::size_t>((step + streams - 1) % streams);
    ring[self].ref().wait(done[before]);
    ring[self].ref().enqueue_host([&order, step] { order.push_back(step); });
    ring[self].ref().record(done[self]);
  }
  for (Stream& stream : ring) stream.ref().synchronize();
  ASSERT_EQ(order.size(), static_cast<std::size_t>(streams * rounds));
  for (int step = 0; step < streams * rounds; ++step) EXPECT_EQ(order[static_cast<std::size_t>(step)], step);
}

TYPED_TEST_P(StreamTest, EventOutlivesItsStream) {
  Event event(this->device_);
  int value = 0;
  {
    Stream stream(this->device_);
    stream.ref().enqueue_host([&] { value = 7; });
    stream.ref().record(event);
  }
  EXPECT_TRUE(event.is_complete());
  event.synchronize();
  EXPECT_EQ(value, 7);
  Stream other(this->device_);
  other.ref().wait(event);
  other.ref().synchronize();
}

TYPED_TEST_P(StreamTest, StreamsOutliveTheEventTheyWaitFor) {
  Stream producer(this->device_), consumer(this->device_);
  Gate gate;
  int value = 0, seen = -1;
  {
    Event event(this->device_);
    gate.hold(producer);
    producer.ref().enqueue_host([&] { value = 5; });
    producer.ref().record(event);
    consumer.ref().wait(event);
  }
  consumer.ref().enqueue_host([&] { seen = value; });
  gate.open();
  consumer.ref().synchronize();
  EXPECT_EQ(seen, 5);
}

TYPED_TEST_P(StreamTest, ExceptionReachesSynchronizeAndDropsLaterTasks) {
  Stream failing(this->device_), waiting(this->device_);
  Event event(this->device_);
  bool dropped = true, other_ran = false;
  failing.ref().enqueue_host([] { throw std::runtime_error("task failed"); });
  failing.ref().enqueue_host([&] { dropped = false; });
  failing.ref().record(event);
  waiting.ref().wait(event);
  waiting.ref().enqueue_host([&] { other_ran = true; });
  // A failed stream still completes its events, so nobody waits for ever; on the host, who waited has failed with it.
  if (this->device_.is_cuda()) {
    waiting.ref().synchronize();
  } else {
    EXPECT_THROW(waiting.ref().synchronize(), std::runtime_error);
    EXPECT_THROW(waiting.ref().rethrow_failure(), std::runtime_error);
  }
  EXPECT_EQ(other_ran, this->device_.is_cuda());
  EXPECT_THROW(failing.ref().rethrow_failure(), std::runtime_error);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      failing.ref().synchronize();
      FAIL() << "synchronize() must rethrow the task's exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "task failed");
    }
  }
  EXPECT_TRUE(dropped);
  failing.ref().enqueue_host([&] { dropped = false; });
  EXPECT_THROW(failing.ref().synchronize(), std::runtime_error);
  EXPECT_TRUE(dropped);
}

TYPED_TEST_P(StreamTest, TheFirstOfTwoExceptionsWins) {
  Stream stream(this->device_);
  stream.ref().enqueue_host([] { throw CommError("first"); });
  stream.ref().enqueue_host([] { throw DeviceError("second"); });
  EXPECT_THROW(stream.ref().synchronize(), CommError);
}

TYPED_TEST_P(StreamTest, DestructorDrainsAndNeverThrows) {
  int ran = 0;
  {
    Stream stream(this->device_);
    for (int i = 0; i < 50; ++i) {
      stream.ref().enqueue_host([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++ran;
      });
    }
  }
  EXPECT_EQ(ran, 50);
  {
    Stream stream(this->device_);
    stream.ref().enqueue_host([] { throw std::runtime_error("nobody asks"); });
  }
}

TYPED_TEST_P(StreamTest, TasksAndTheirCapturesAreReleased) {
  auto token = std::make_shared<int>(0);
  {
    Stream stream(this->device_);
    for (int i = 0; i < 10; ++i) stream.ref().enqueue_host([token] { ++*token; });
    stream.ref().enqueue_host([token] { throw std::runtime_error("drop the rest"); });
    for (int i = 0; i < 10; ++i) stream.ref().enqueue_host([token] { ++*token; });
  }
  EXPECT_EQ(*token, 10);
  EXPECT_EQ(token.use_count(), 1);
}

TYPED_TEST_P(StreamTest, MovedStreamKeepsItsQueue) {
  Stream first(this->device_);
  Gate gate;
  int value = 0;
  gate.hold(first);
  first.ref().enqueue_host([&] { value = 3; });
  Stream second = std::move(first);
  gate.open();
  second.ref().synchronize();
  EXPECT_EQ(value, 3);
  EXPECT_EQ(second.ref().device(), this->device_);
}

TYPED_TEST_P(StreamTest, CopiesAndZeroesInOrder) {
  DeviceMemory memory(this->device_);
  Stream stream(this->device_, StreamPriority::high);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{255}, std::size_t{4099}, std::size_t{1} << 20}) {
    const Buffer device = memory.allocate(bytes), other = memory.allocate(bytes);
    const Buffer in = memory.allocate(bytes, MemoryKind::pinned_host), out = memory.allocate(bytes, MemoryKind::pinned_host);
    auto* source = static_cast<unsigned char*>(in.data());
    auto* result = static_cast<unsigned char*>(out.data());
    for (std::size_t i = 0; i < bytes; ++i) source[i] = static_cast<unsigned char>(i * 37 + 11);
    std::memset(result, 0xEE, bytes);
    stream.ref().zero(device.data(), bytes);
    stream.ref().copy(other.data(), in.data(), bytes);
    stream.ref().copy(device.data(), other.data(), bytes / 2);  // the second half stays zero
    stream.ref().copy(out.data(), device.data(), bytes);
    stream.ref().synchronize();
    for (std::size_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(result[i], i < bytes / 2 ? source[i] : 0) << "byte " << i << " of " << bytes;
    }
  }
}

TYPED_TEST_P(StreamTest, TimedEventsMeasureTheStream) {
  Stream stream(this->device_);
  Event from(this->device_, EventTiming::on), to(this->device_, EventTiming::on);
  stream.ref().record(from);
  stream.ref().enqueue_host([] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
  stream.ref().record(to);
  to.synchronize();
  EXPECT_GE(elapsed_ms(from, to), 29.0f);
  EXPECT_LT(elapsed_ms(from, to), 5000.0f);
}

TYPED_TEST_P(StreamTest, ElapsedTimeOfAnIncompleteEventIsAnError) {
  Stream stream(this->device_);
  Event from(this->device_, EventTiming::on), to(this->device_, EventTiming::on);
  Gate gate;
  stream.ref().record(from);
  gate.hold(stream);
  stream.ref().record(to);
  EXPECT_THROW(static_cast<void>(elapsed_ms(from, to)), Error);
  gate.open();
  stream.ref().synchronize();
  EXPECT_GE(elapsed_ms(from, to), 0.0f);
}

REGISTER_TYPED_TEST_SUITE_P(StreamTest, RunsInOrder, DoesNotBlockTheCaller, HoldsNoMoreThanSoMuch, CountsInOrder,
                            EventNeverRecordedIsComplete, WaitOrdersTwoStreams, WaitBeforeTheFirstRecordDoesNotWait,
                            RecordingAgainMovesTheEventButNotEarlierWaits, ChainAcrossStreamsKeepsOneOrder,
                            EventOutlivesItsStream, StreamsOutliveTheEventTheyWaitFor,
                            ExceptionReachesSynchronizeAndDropsLaterTasks, TheFirstOfTwoExceptionsWins,
                            DestructorDrainsAndNeverThrows, TasksAndTheirCapturesAreReleased, MovedStreamKeepsItsQueue,
                            CopiesAndZeroesInOrder, TimedEventsMeasureTheStream, ElapsedTimeOfAnIncompleteEventIsAnError);
INSTANTIATE_TYPED_TEST_SUITE_P(Host, StreamTest, OnHost);
INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, StreamTest, OnCuda);

TEST(HostStreamTest, RunsOnAThreadOfItsOwn) {
  Stream one(OnHost::device()), two(OnHost::device());
  std::thread::id first, second;
  one.ref().enqueue_host([&] { first = std::this_thread::get_id(); });
  two.ref().enqueue_host([&] { second = std::this_thread::get_id(); });
  one.ref().synchronize();
  two.ref().synchronize();
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_NE(first, second);
  EXPECT_EQ(one.ref().native(), nullptr);
}

TEST(StreamRefTest, SaysWhetherItRefersToAStream) {
  Stream stream(OnHost::device());
  EXPECT_FALSE(StreamRef());
  EXPECT_TRUE(stream.ref());
}

}  // namespace
}  // namespace plait
