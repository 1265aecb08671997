// Streams, events and counters, the same for CUDA and for the host.
//
// A stream runs enqueued work in order, asynchronously to the caller. On CUDA it is a cudaStream_t; on the host it is a worker
// thread with a queue, so overlap, ordering bugs and their fixes behave identically on both, and ThreadSanitizer sees a
// forgotten wait as the data race it is.
//
// Only functions whose name starts with `synchronize` block the calling thread on device work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/device.h"

namespace plait {

// Counters in memory shared by threads or processes. Host streams write them and wait for them (StreamRef::write_value).

// True if a counter that reads `now` has reached `value`. Both are 32-bit numbers that wrap around.
inline bool reached(std::uint32_t now, std::uint32_t value) { return static_cast<std::int32_t>(now - value) >= 0; }

std::uint32_t read_counter(const std::uint32_t* counter);  // acquires everything released with the value

// Releases this thread's earlier writes, and wakes all waiters in every process that has the memory mapped.
void write_counter(std::uint32_t* counter, std::uint32_t value);

// Blocks until the counter has reached `value`.
void await_counter(const std::uint32_t* counter, std::uint32_t value);

namespace detail {
class StreamImpl;
class EventImpl;
}  // namespace detail

enum class EventTiming { off, on };

// A point in a stream. Recording again moves the point. As in CUDA, waiting for an event that was never recorded returns at
// once. An event may be destroyed while streams still wait for it. While a stream is captured into a CUDA graph, recording a
// timed event makes a node of the graph, which records it in every launch; other events give order within the graph and mean
// nothing outside of it.
class Event {
 public:
  explicit Event(Device device, EventTiming timing = EventTiming::off);
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();
  // True if the latest recorded point is reached, and if none was recorded. DeviceError if a device's stream failed; a failed
  // host stream counts as having reached it, and reports the failure in StreamRef::synchronize().
  bool is_complete() const;
  void synchronize() const;  // blocks the caller until then
  detail::EventImpl& impl() const { return *impl_; }

 private:
  std::unique_ptr<detail::EventImpl> impl_;
};

// Milliseconds from one timed event to another, both complete. Host events carry the time at which their queue reached them.
float elapsed_ms(const Event& from, const Event& to);

// A stream writes a counter or waits for one.
struct CounterOperation {
  enum class Kind { write, wait };
  Kind kind = Kind::write;
  std::uint32_t* counter = nullptr;
  std::uint32_t value = 0;
};

// The limit on unfinished calls in a stream. A caller that enqueues more waits until some are done, in StreamRef's own
// functions and in native(). CUDA's own queue is longer, but a thread that fills that one waits while holding a lock of the
// process: another thread that needs the lock (cuDNN's attention does, CUDA when it loads or allocates something) never gets
// it, and if the stream waits for that thread's work, nothing proceeds. A program has to manage with this many (docs/p2p.md).
inline constexpr int most_enqueued = 384;

// Non-owning handle, cheap to copy; the first parameter of everything that enqueues work.
class StreamRef {
 public:
  StreamRef() = default;
  explicit StreamRef(detail::StreamImpl& impl) : impl_(&impl) {}

  Device device() const;
  void record(Event& event) const;      // `event` completes when everything enqueued so far has run
  void wait(const Event& event) const;  // later work runs after the latest record of `event`
  // A companion stream, for work that should not hold up this one. The next work enqueued there runs after `event`, which was
  // just recorded here. This stream waits for nothing there, but synchronize() does. On an H200 a timed event or a written
  // value delays the stream's next kernel by 3 us, an event without a time not at all; on the companion a time is late by the
  // duration of a wait between streams. A stream without a companion (Stream) is its own, as all host streams are.
  StreamRef aside(const Event& event) const;
  StreamRef companion() const;                                     // null if it is its own
  void copy(void* to, const void* from, std::size_t bytes) const;  // any of device and (pinned) host memory
  void zero(void* memory, std::size_t bytes) const;
  // Order between streams that share no events: those of other ranks, other processes, or other machines' GPUs on one fabric. A
  // counter is 4 aligned bytes in memory that this stream's device can reach: device memory (also a peer's) or pinned host
  // memory; for the host device any memory, also shared between processes. A reader that sees the value also sees everything
  // the stream wrote before it. wait_value holds back later work until the counter has reached `value`. Counters wrap around:
  // "reached" means int32(counter - value) >= 0.
  void write_value(std::uint32_t* counter, std::uint32_t value) const;
  void wait_value(const std::uint32_t* counter, std::uint32_t value) const;
  void count(std::span<const CounterOperation> operations) const;  // many of both, in order; one call of the driver
  // Host device: runs `task` on the stream's thread. CUDA: runs it on a driver thread in stream order; it must not call CUDA.
  // An exception thrown by a task is kept, later tasks are dropped (events still complete) and synchronize() rethrows it. On
  // the host device it fails every stream that waits for an event recorded after it, so that nothing is computed from dropped
  // work; a failed CUDA device fails with all of its streams.
  void enqueue_host(std::function<void()> task) const;
  void synchronize() const;      // blocks the caller until the stream is empty; rethrows a task's exception
  void rethrow_failure() const;  // rethrows a failure so far, without waiting
  void* native() const;          // cudaStream_t, for one launch; nullptr on the host device
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  detail::StreamImpl* impl_ = nullptr;
};

enum class StreamPriority { normal, high };

// Owns a stream. The destructor drains it first (it never throws). A companion (StreamRef::aside) is for streams of kernels
// that follow each other closely: streams of a device share its hardware queues. It is made with the stream, because CUDA may
// wait for a device's work when it makes one.
class Stream {
 public:
  explicit Stream(Device device, StreamPriority priority = StreamPriority::normal, bool has_companion = false);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();
  StreamRef ref() const { return StreamRef(*impl_); }
  operator StreamRef() const { return ref(); }

 private:
  std::unique_ptr<detail::StreamImpl> impl_;
};

}  // namespace plait
