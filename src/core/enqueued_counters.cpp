#include "core/enqueued_counters.h"

#include <utility>

#include "core/error.h"

namespace plait {
namespace {

thread_local std::unique_lock<std::mutex>* turn_of_this_thread = nullptr;

// Lets the others have their turns.
class GivenUpTurn {
 public:
  GivenUpTurn() {
    if (turn_of_this_thread) turn_of_this_thread->unlock();
  }
  ~GivenUpTurn() {
    if (turn_of_this_thread) turn_of_this_thread->lock();
  }
  GivenUpTurn(const GivenUpTurn&) = delete;
  GivenUpTurn& operator=(const GivenUpTurn&) = delete;
};

}  // namespace

Turn::Turn(std::mutex& mutex) : lock_(mutex) {
  require(turn_of_this_thread == nullptr, "Turn: this thread has one");
  turn_of_this_thread = &lock_;
}

Turn::~Turn() { turn_of_this_thread = nullptr; }

void EnqueuedCounters::write(const std::uint32_t* counter, std::uint32_t value, std::shared_ptr<const Event> written) {
  {
    std::lock_guard lock(mutex_);
    latest_[counter] = {value, std::move(written)};
  }
  changed_.notify_all();
}

std::shared_ptr<const Event> EnqueuedCounters::await(const std::uint32_t* counter, std::uint32_t value) {
  const auto enough = [&]() -> const Written* {
    static const Written none;
    const auto found = latest_.find(counter);
    const Written& latest = found == latest_.end() ? none : found->second;
    return reached(latest.value, value) ? &latest : nullptr;
  };
  {
    std::lock_guard lock(mutex_);
    if (const Written* latest = enough()) return latest->event;
  }
  const GivenUpTurn meanwhile;
  std::unique_lock lock(mutex_);
  const Written* latest = nullptr;
  changed_.wait(lock, [&] { return (latest = enough()) != nullptr; });
  return latest->event;
}

void EnqueuedCounters::begin(const void* memory, std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(memory);
  const auto as_counter = [](const std::byte* address) { return reinterpret_cast<const std::uint32_t*>(address); };
  std::lock_guard lock(mutex_);
  latest_.erase(latest_.lower_bound(as_counter(first)), latest_.lower_bound(as_counter(first + bytes)));
}

EnqueuedCounters& enqueued_counters() {
  static EnqueuedCounters counters;
  return counters;
}

}  // namespace plait
