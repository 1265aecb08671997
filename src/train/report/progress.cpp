#include "train/report/progress.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/base_sink.h>

#include <utility>

namespace plait::train {
namespace {

constexpr auto min_interval = std::chrono::milliseconds(50);

// base_sink's mutex guards the formatter; StatusLine has its own for the output.
class StatusLineSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StatusLineSink(std::shared_ptr<StatusLine> line) : line_(std::move(line)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    line_->print({text.data(), text.size()});
  }
  void flush_() override {}
  std::shared_ptr<StatusLine> line_;
};

}  // namespace

Progress::Progress(std::int64_t steps, std::int64_t done, const TerminalOptions& terminal,
                   std::function<Clock::time_point()> now)
    : line_(std::make_shared<StatusLine>(terminal)), now_(std::move(now)), steps_(steps), step_(done) {}

std::optional<std::chrono::seconds> Progress::eta() const {
  if (!first_ || step_ <= first_->first || step_ >= steps_) return std::nullopt;
  const std::chrono::duration<double> elapsed = now_() - first_->second;
  const double seconds = elapsed.count() / static_cast<double>(step_ - first_->first) * static_cast<double>(steps_ - step_);
  return std::chrono::seconds(static_cast<std::int64_t>(seconds + 0.5));
}

void Progress::reached(std::int64_t step) {
  step_ = step;
  if (!first_) first_ = {step, now_()};
}

void Progress::show() {
  const TerminalOptions& terminal = line_->options();
  // One column stays free: a terminal wraps when the last one is written.
  const LineStyle style{line_->width() - 1, terminal.unicode, terminal.color};
  line_->update(status_text(style, step_, steps_, latest_, validation_loss_, eta()));
  shown_ = now_();
}

void Progress::report(const StepMetrics& metrics) {
  reached(metrics.step);
  latest_ = metrics;
  if (line_->options().updating) {
    show();
  } else {
    line_->print(plain_text(metrics, steps_, eta()));
  }
}

void Progress::advance(std::int64_t step) {
  reached(step);
  if (line_->options().updating && (!shown_ || now_() - *shown_ >= min_interval)) show();
}

void Progress::validation(std::int64_t step, double loss) {
  validation_loss_ = loss;
  line_->print(validation_text(step, steps_, loss));
}

void Progress::print(std::string_view text) { line_->print(text); }

void Progress::print_prose(std::string_view text) { line_->print_prose(text); }

void Progress::finish() {
  if (line_->options().updating && latest_) show();
  line_->finish();
}

std::shared_ptr<spdlog::sinks::sink> Progress::sink() const { return std::make_shared<StatusLineSink>(line_); }

}  // namespace plait::train
