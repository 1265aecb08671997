// The host as an asynchronous device: a stream is a worker thread with a queue.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/stream.h"
#include "core/stream_impl.h"

namespace plait::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Shared between the Event and the queues that record or await it, so that an Event may die before they get there.
struct HostEventState {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;   // tickets handed out by record
  std::uint64_t completed = 0;  // highest ticket reached by a queue
  Clock::time_point time;       // when `completed` was reached
  std::exception_ptr failure;   // of the queue that reached it

  std::uint64_t issue() {
    std::lock_guard lock(mutex);
    return ++recorded;
  }
  std::uint64_t latest() {
    std::lock_guard lock(mutex);
    return recorded;
  }
  void complete(std::uint64_t ticket, const std::exception_ptr& failure_of_queue) {
    std::lock_guard lock(mutex);
    if (ticket > completed) {
      completed = ticket;
      time = Clock::now();
      failure = failure_of_queue;
    }
    changed.notify_all();
  }
  // Returns the failure of the queue that reached the ticket, if it had failed.
  std::exception_ptr await(std::uint64_t ticket) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed >= ticket; });
    return failure;
  }
};

class HostEvent final : public EventImpl {
 public:
  std::shared_ptr<HostEventState> state = std::make_shared<HostEventState>();

  bool is_complete() const override {
    std::lock_guard lock(state->mutex);
    return state->completed >= state->recorded;
  }
  void synchronize() const override { static_cast<void>(state->await(state->latest())); }
  float elapsed_ms_until(const EventImpl& end) const override {
    const auto& other = static_cast<const HostEvent&>(end);
    return std::chrono::duration<float, std::milli>(other.reached_at() - reached_at()).count();
  }

 private:
  Clock::time_point reached_at() const {
    std::lock_guard lock(state->mutex);
    require(state->recorded > 0 && state->completed >= state->recorded, "elapsed_ms: event not complete");
    return state->time;
  }
};

class HostStream final : public StreamImpl {
 public:
  explicit HostStream(Device device) : device_(device), worker_([this] { run(); }) {}

  ~HostStream() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  Device device() const override { return device_; }

  void record(EventImpl& event) override {
    auto state = static_cast<HostEvent&>(event).state;
    const std::uint64_t ticket = state->issue();
    push({[this, state, ticket] { state->complete(ticket, failure()); }, true});
  }

  void wait(const EventImpl& event) override {
    auto state = static_cast<const HostEvent&>(event).state;
    const std::uint64_t ticket = state->latest();
    if (ticket == 0) return;
    // Later tasks would compute with results that were never made.
    push({[state, ticket] {
            if (const std::exception_ptr failure = state->await(ticket)) std::rethrow_exception(failure);
          },
          true});
  }

  StreamImpl& aside(const EventImpl&) override { return *this; }
  StreamImpl* companion() const override { return nullptr; }

  void copy(void* to, const void* from, std::size_t bytes) override {
    push({[=] {
            if (bytes > 0) std::memcpy(to, from, bytes);  // of nothing, `from` may be null
          },
          false});
  }
  void zero(void* memory, std::size_t bytes) override {
    push({[=] { std::memset(memory, 0, bytes); }, false});
  }
  // Runs even after a failure, as records and waits do: another process may wait for the counter.
  void count(std::span<const CounterOperation> operations) override {
    for (const auto& [kind, counter, value] : operations) {
      if (kind == CounterOperation::Kind::write)
        push({[counter, value] { write_counter(counter, value); }, true});
      else
        push({[counter, value] { await_counter(counter, value); }, true});
    }
  }
  void enqueue_host(std::function<void()> task) override { push({std::move(task), false}); }

  void synchronize() override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
    }
    rethrow_failure();
  }

  void rethrow_failure() const override {
    if (const std::exception_ptr kept = failure()) std::rethrow_exception(kept);
  }

  void* native() override { return nullptr; }

 private:
  struct Task {
    std::function<void()> run;
    bool ordering;  // records and waits run even after a failure, so that nothing waits for ever
  };

  std::exception_ptr failure() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  void push(Task task) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return queue_.size() < most_enqueued; });
      queue_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !queue_.empty() || stopping_; });
      if (queue_.empty()) return;
      Task task = std::move(queue_.front());
      if (queue_.size() == most_enqueued) changed_.notify_all();
      queue_.pop_front();
      busy_ = true;
      const bool skip = failure_ && !task.ordering;
      lock.unlock();
      std::exception_ptr failure;
      if (!skip) {
        try {
          task.run();
        } catch (...) {
          failure = std::current_exception();
        }
      }
      task.run = nullptr;
      lock.lock();
      if (failure && !failure_) failure_ = failure;
      busy_ = false;
      if (queue_.empty()) changed_.notify_all();
    }
  }

  Device device_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::exception_ptr failure_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread worker_;  // last: starts when everything above exists
};

}  // namespace

std::unique_ptr<StreamImpl> make_host_stream(Device device) { return std::make_unique<HostStream>(device); }
std::unique_ptr<EventImpl> make_host_event() { return std::make_unique<HostEvent>(); }

}  // namespace plait::detail
