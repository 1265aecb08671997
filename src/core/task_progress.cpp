#include "core/task_progress.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

#include "core/format.h"

namespace plait {
namespace {

using namespace std::chrono_literals;

constexpr auto silent_time = 5s;
constexpr auto between_lines = 30s;  // if the output is not a terminal
constexpr auto tick = 500ms;
constexpr double least_done = 0.01;  // minimum for an estimate

std::chrono::seconds whole(std::chrono::duration<double> duration) {
  return std::chrono::seconds(static_cast<std::int64_t>(duration.count() + 0.5));
}

}  // namespace

TaskProgress::TaskProgress(std::string what, std::shared_ptr<StatusLine> line, std::function<Clock::time_point()> now)
    : what_(std::move(what)),
      line_(line ? std::move(line) : std::make_shared<StatusLine>(detect_terminal(stderr))),
      now_(now ? now : Clock::now),
      begin_(now_()),
      working_since_(begin_) {
  if (now) return;
  ticker_ = std::jthread([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      {
        std::unique_lock lock(mutex_);
        ended_.wait_for(lock, stop, tick, [] { return false; });
      }
      if (!stop.stop_requested()) show();
    }
  });
}

TaskProgress::~TaskProgress() {
  ticker_ = {};  // stops and joins it
  line_->update("");
}

void TaskProgress::advance(double done, const std::string& now) {
  const std::lock_guard lock(mutex_);
  done_ = std::clamp(done, done_, 1.0);
  if (done_ == 0) working_since_ = now_();
  doing_ = now;
}

ProgressCallback TaskProgress::callback() {
  return [this](double done, const std::string& now) { advance(done, now); };
}

std::string TaskProgress::text(Clock::time_point now) const {
  std::string text = fmt::format("{}: {}", what_, format_duration(whole(now - begin_)));
  if (done_ >= least_done) {
    const std::chrono::duration<double> left = (now - working_since_) * (1 / done_ - 1);
    text += fmt::format(", {:.0f} % done, about {} left", 100 * done_, format_duration(whole(left)));
  }
  return doing_.empty() ? text : text + ": " + doing_;
}

void TaskProgress::show() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = now_();
  if (now - begin_ < silent_time) return;
  if (line_->options().updating) {
    // One column stays free: a terminal wraps when the last one is written.
    line_->update(shortened(text(now), line_->width() - 1, line_->options().unicode));
  } else if (!shown_ || now - *shown_ >= between_lines) {
    line_->print("plait: " + text(now));
    shown_ = now;
  }
}

ProgressCallback progress_from_first_call(std::optional<TaskProgress>& progress, std::string what) {
  return [&progress, what = std::move(what)](double done, const std::string& now) {
    if (!progress) progress.emplace(what);
    progress->advance(done, now);
  };
}

}  // namespace plait
