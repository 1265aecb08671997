// Counters between streams of ranks that share a GPU (Device::shared).
//
// Elsewhere a stream waits for a counter in memory (StreamRef::wait_value), or a kernel does. Such a wait holds one of the
// hardware queues of the GPU, which are fewer than the streams of its ranks, or a part of a multiprocessor, and what it holds
// may be just what the awaited work needs. So where ranks share a GPU, the thread that enqueues a wait blocks until somebody
// has enqueued the write, and then makes its stream wait for an event behind that write. By that rule every wait is enqueued
// after what it waits for, and the order of enqueueing is one in which all work can run, whichever streams share a queue.
//
// The rule asks for threads that block independently of each other, as streams do: one for each stream of a rank
// (Interpreter::issue_by_streams).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "core/stream.h"

namespace plait {

// The counters of all GPUs that ranks of this process share. From any thread.
class EnqueuedCounters {
 public:
  // A write of `value` was enqueued, and `written` recorded behind it. Values of a counter grow, modulo 2^32.
  void write(const std::uint32_t* counter, std::uint32_t value, std::shared_ptr<const Event> written);
  // Blocks until a write of at least `value` has been enqueued; returns the event behind the latest write. Null: a counter is 0
  // to begin with, and that is enough.
  std::shared_ptr<const Event> await(const std::uint32_t* counter, std::uint32_t value);
  // Memory in which counters begin, at 0.
  void begin(const void* memory, std::size_t bytes);

 private:
  struct Written {
    std::uint32_t value = 0;
    std::shared_ptr<const Event> event;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const std::uint32_t*, Written> latest_;
};

EnqueuedCounters& enqueued_counters();

// Threads that share a mutex take turns: each holds it but while it waits for a counter, or for what another has issued.
class Turn {
 public:
  explicit Turn(std::mutex& mutex);  // waits for the mutex, and is this thread's turn until it is destroyed
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace plait
