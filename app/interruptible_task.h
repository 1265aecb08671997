// A task of a command with a single process: shows its progress, and ends on a signal.
#pragma once

#include <string>

#include "core/task_progress.h"
#include "launch/launch.h"
#include "launch/stop_signals.h"

namespace plait {

// Shows the progress (core/task_progress.h). After a stop signal, the next call of callback() throws launch::Interrupted, so
// that partial output of the task is removed on the way out. A second signal ends the process at once.
class InterruptibleTask {
 public:
  explicit InterruptibleTask(std::string what) : progress_(std::move(what)) {}

  ProgressCallback callback() {
    return [this](double done, const std::string& now) {
      if (const int signal = signals_.signal(); signal != 0)
        throw launch::Interrupted("interrupted by " + launch::describe_signal(signal), signal);
      progress_.advance(done, now);
    };
  }

 private:
  const launch::StopSignals signals_;
  TaskProgress progress_;
};

}  // namespace plait
