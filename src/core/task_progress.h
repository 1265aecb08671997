// How far something has come that takes a while, and how long it will still take: on stderr, from the fifth second on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "core/progress_callback.h"
#include "core/status_line.h"

namespace plait {

// On a terminal a line that is rewritten and in the end erased; elsewhere a line of its own at the fifth second, then every
// thirty. A thread of its own keeps the time where nothing is told for long. Thread-safe.
class TaskProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // `what`: "measuring". `line`: where others write to it too; null: one of its own, on stderr. `now` can be replaced in tests,
  // which then call show().
  explicit TaskProgress(std::string what, std::shared_ptr<StatusLine> line = nullptr,
                        std::function<Clock::time_point()> now = {});
  ~TaskProgress();

  // The time up to the last call with nothing done is for getting ready: it does not count for the estimate.
  void advance(double done, const std::string& now);
  ProgressCallback callback();
  void show();

 private:
  std::string text(Clock::time_point now) const;

  const std::string what_;
  const std::shared_ptr<StatusLine> line_;
  const std::function<Clock::time_point()> now_;
  const Clock::time_point begin_;
  Clock::time_point working_since_;
  std::mutex mutex_;
  std::condition_variable_any ended_;
  double done_ = 0;
  std::string doing_;
  std::optional<Clock::time_point> shown_;
  std::jthread ticker_;  // last: it uses the others
};

// Tells `progress`, which begins with the first call: of ranks that are processes, only one makes it. `progress` outlives this.
ProgressCallback progress_from_first_call(std::optional<TaskProgress>& progress, std::string what);

}  // namespace plait
