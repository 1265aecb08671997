// The screen output of a run: one updating line with bar, loss, speed and ETA on a terminal, a line per logged step elsewhere;
// validation results and log messages have their own lines in between.
#pragma once

#include <spdlog/sinks/sink.h>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/terminal.h"
#include "train/report/step_metrics.h"

namespace plait::train {

struct LineStyle {
  int columns = 80;      // limit of the visible width: first the least important numbers are left out, then the bar shrinks
  bool unicode = false;  // draws the bar with box-drawing characters
  bool color = false;    // tints the bar
};

// The lines that Progress shows, as pure functions.

// "[#####-----] 420/1000  loss 3.2145  1.26M tok/s  58.3 ms  ETA 0:34  grad norm 0.82  ..."
std::string status_text(const LineStyle& style, std::int64_t step, std::int64_t steps, const std::optional<StepMetrics>& latest,
                        std::optional<double> validation_loss, std::optional<std::chrono::seconds> eta);

// "step  420/1000  loss 3.2145  lr 5.8e-04  ...": columns of fixed width, so that lines align; and a second line for the losses
// in the ledger, if they are worth it.
std::string plain_text(const StepMetrics& metrics, std::int64_t steps, std::optional<std::chrono::seconds> eta);

// "step  420/1000  validation loss 3.3012  perplexity 27.1"
std::string validation_text(std::int64_t step, std::int64_t steps, double loss);

// One thread reports; any thread may use print() and the sink.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `done`: steps done before this run (a resumed one). The clock can be replaced in tests.
  Progress(std::int64_t steps, std::int64_t done = 0, const TerminalOptions& terminal = detect_terminal(),
           std::function<Clock::time_point()> now = Clock::now);

  void report(const StepMetrics& metrics);  // a logged step
  void advance(std::int64_t step);          // any other step: moves bar and ETA on a terminal, at most 20 times a second
  void validation(std::int64_t step, double loss);
  void print(std::string_view text);        // a lasting line, not folded, so that a command can be copied
  void print_prose(std::string_view text);  // a lasting line, folded at the terminal's width
  void finish();                            // the last status stays; a later print starts below it

  // For spdlog: messages appear above the status line. May outlive the Progress.
  std::shared_ptr<spdlog::sinks::sink> sink() const;

 private:
  std::optional<std::chrono::seconds> eta() const;
  void reached(std::int64_t step);
  void show();

  std::shared_ptr<StatusLine> line_;
  std::function<Clock::time_point()> now_;
  std::int64_t steps_;
  std::int64_t step_;
  std::optional<std::pair<std::int64_t, Clock::time_point>> first_;  // first step seen: tuning and warm-up are over by then
  std::optional<StepMetrics> latest_;
  std::optional<double> validation_loss_;
  std::optional<Clock::time_point> shown_;
};

}  // namespace plait::train
