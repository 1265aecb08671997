// How a run shows itself on screen: one updating line with bar, loss, speed and ETA on a terminal, a line per logged step
// elsewhere; validation results and log messages as lines of their own, in between.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <spdlog/sinks/sink.h>
#include <string>
#include <string_view>

#include "train/report/status_line.h"
#include "train/report/step_metrics.h"

namespace plait::train {

// Thread-safe where noted; otherwise used by one thread.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `done`: steps done before this run (a resumed one). The clock can be replaced in tests.
  Progress(std::int64_t steps, std::int64_t done = 0, const TerminalOptions& terminal = detect_terminal(),
           std::function<Clock::time_point()> now = Clock::now);

  void report(const StepMetrics& metrics);  // a logged step
  void advance(std::int64_t step);          // any other step: moves bar and ETA on a terminal, at most 20 times a second
  void validation(std::int64_t step, double loss);
  void print(std::string_view text);        // a lasting line; thread-safe
  void finish();                            // the last status stays; a later print starts below it

  // For spdlog: messages appear above the status line. May outlive the Progress.
  std::shared_ptr<spdlog::sinks::sink> sink() const;

 private:
  std::optional<std::chrono::seconds> eta(std::int64_t step) const;
  void show(std::int64_t step);
  std::shared_ptr<StatusLine> line_;
  std::function<Clock::time_point()> now_;
  std::int64_t steps_;
  std::optional<std::pair<std::int64_t, Clock::time_point>> first_;  // first step seen: warm-up is over then
  std::optional<StepMetrics> latest_;
  std::optional<double> validation_loss_;
  Clock::time_point shown_{};
};

// The texts, for tests. `unicode` draws the bar with block elements, `color` tints it; columns bounds the visible width, for
// which the least telling numbers are left out first.
struct LineStyle {
  int columns = 80;
  bool unicode = false;
  bool color = false;
};
std::string status_text(const LineStyle& style, std::int64_t step, std::int64_t steps, const std::optional<StepMetrics>& latest,
                        std::optional<double> validation_loss, std::optional<std::chrono::seconds> eta);
std::string plain_text(const StepMetrics& metrics, std::int64_t steps, std::optional<std::chrono::seconds> eta);

std::string format_duration(std::chrono::seconds duration);  // "0:07", "12:30", "3:05:00", "2d 03:05"
std::string format_count(double value);                      // "987", "12.3k", "4.56M"
std::string format_bytes(std::int64_t bytes);                // "512.0 MiB", "12.4 GiB"

}  // namespace plait::train
