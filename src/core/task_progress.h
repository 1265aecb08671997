// The progress of a long task: how the task reports it, and how it is shown.
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

#include "core/terminal.h"

namespace plait {

// Receives the part that is done, 0 to 1, and the current activity, which may be empty. TaskProgress shows it.
using ProgressCallback = std::function<void(double done, const std::string& now)>;

inline const ProgressCallback no_progress = [](double, const std::string&) {};

// Shows the progress and the remaining time of a long task on stderr, from the fifth second on. On a terminal it is one line,
// rewritten and finally erased; elsewhere a new line at the fifth second, then every thirty. Its own thread keeps time between
// reports. Thread-safe.
class TaskProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // `what`: "measuring". `line`: if others write to it too; null: one of its own, on stderr. `now` can be replaced in tests,
  // which then call show().
  explicit TaskProgress(std::string what, std::shared_ptr<StatusLine> line = nullptr,
                        std::function<Clock::time_point()> now = {});
  ~TaskProgress();

  // The time up to the last call with nothing done counts as preparation and not for the estimate.
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

// Reports to `progress`, which begins with the first call: among ranks that are processes, only one makes it. `progress`
// outlives this.
ProgressCallback progress_from_first_call(std::optional<TaskProgress>& progress, std::string what);

}  // namespace plait
