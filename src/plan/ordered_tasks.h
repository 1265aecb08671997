// Independent tasks that several threads run ahead of a consumer, which takes the results in order and may stop early.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace plait::plan {

template <typename Result>
class OrderedTasks {
 public:
  // `thread` is below `threads`; no two tasks run on the same one at once.
  using Task = std::function<Result(std::size_t task, std::size_t thread)>;

  // With one thread there are no workers: the caller runs each task when it takes it.
  OrderedTasks(std::size_t tasks, std::size_t threads, Task task)
      : task_(std::move(task)), ahead_(2 * threads), results_(tasks) {
    if (threads < 2 || tasks < 2) return;
    for (std::size_t thread = 0; thread < threads; ++thread) {
      threads_.emplace_back([this, thread](const std::stop_token& stop) { work(stop, thread); });
    }
  }

  // Takes each result once, in order; throws what the task threw. Tasks that have not begun when the consumer stops are
  // skipped.
  Result take(std::size_t task) {
    if (threads_.empty()) return task_(task, 0);
    {
      const std::lock_guard lock(mutex_);
      taken_ = task;
    }
    moved_.notify_all();
    return results_[task].get_future().get();
  }

 private:
  void work(const std::stop_token& stop, std::size_t thread) {
    while (true) {
      std::size_t task = 0;
      {
        std::unique_lock lock(mutex_);
        if (!moved_.wait(lock, stop, [&] { return next_ == results_.size() || next_ < taken_ + ahead_; })) return;
        if (next_ == results_.size() || stop.stop_requested()) return;
        task = next_++;
      }
      try {
        results_[task].set_value(task_(task, thread));
      } catch (...) {
        results_[task].set_exception(std::current_exception());
      }
    }
  }

  const Task task_;
  const std::size_t ahead_;  // how far workers may run ahead of the task last taken, to bound wasted work
  std::vector<std::promise<Result>> results_;
  std::mutex mutex_;
  std::condition_variable_any moved_;
  std::size_t next_ = 0, taken_ = 0;
  std::vector<std::jthread> threads_;  // the last member: destroyed, and so joined, before the members that the threads use
};

}  // namespace plait::plan
