#include "train/report/progress.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "core/format.h"
#include "train/report/ledger_text.h"

namespace plait::train {
namespace {

constexpr int wide_bar = 24;
constexpr int narrow_bar = 8;

// A number on the status line. Lower ranks are kept longer when the terminal is narrow.
struct Field {
  int rank;
  std::string text;
};

int digits(std::int64_t value) { return static_cast<int>(std::to_string(value).size()); }

std::string step_text(std::int64_t step, std::int64_t steps) { return fmt::format("{:>{}}/{}", step, digits(steps), steps); }

std::string bar(const LineStyle& style, double fraction, int columns) {
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * columns);
  std::string done, left;
  for (int i = 0; i < filled; ++i) done += style.unicode ? "━" : "#";
  for (int i = filled; i < columns; ++i) left += style.unicode ? "─" : "-";
  if (style.color) {
    done = "\x1b[36m" + done + "\x1b[0m";
    left = "\x1b[2m" + left + "\x1b[0m";
  }
  return style.unicode ? done + left : "[" + done + left + "]";
}

std::vector<Field> status_fields(const std::optional<StepMetrics>& latest, std::optional<double> validation_loss,
                                 std::optional<std::chrono::seconds> eta) {
  std::vector<Field> fields;
  if (latest) {
    fields.push_back({0, fmt::format("loss {:.4f}", latest->loss)});
    if (validation_loss) fields.push_back({6, fmt::format("val {:.4f}", unsigned_nan(*validation_loss))});
    fields.push_back({8, fmt::format("lr {:.2e}", latest->learning_rate)});
    fields.push_back({7, fmt::format("norm {:.2f}", latest->grad_norm)});
    fields.push_back({3, fmt::format("{:.1f} ms", latest->step_ms)});
    fields.push_back({2, format_count(latest->tokens_per_second) + " tok/s"});
    if (latest->tflops_per_gpu) fields.push_back({4, fmt::format("{:.0f} TFLOP/s", *latest->tflops_per_gpu)});
    if (latest->mfu) fields.push_back({5, fmt::format("MFU {:.1f}%", 100 * *latest->mfu)});
    if (latest->ledger && latest->ledger->step_ms > 0) {
      fields.push_back({10, fmt::format("exposed {:.1f}%", 100 * latest->ledger->exposed_ms() / latest->ledger->step_ms)});
      fields.push_back({11, fmt::format("bubble {:.1f}%", 100 * latest->ledger->bubble_ms / latest->ledger->step_ms)});
    }
    if (latest->peak_bytes) fields.push_back({9, format_bytes(static_cast<double>(*latest->peak_bytes))});
  }
  if (eta) fields.push_back({1, "ETA " + format_duration(*eta)});
  return fields;
}

int width_of(const std::vector<Field>& fields) {
  int width = 0;
  for (const Field& field : fields) width += 2 + static_cast<int>(field.text.size());
  return width;
}

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

std::string status_text(const LineStyle& style, std::int64_t step, std::int64_t steps, const std::optional<StepMetrics>& latest,
                        std::optional<double> validation_loss, std::optional<std::chrono::seconds> eta) {
  std::vector<Field> fields = status_fields(latest, validation_loss, eta);
  const double fraction = steps > 0 ? static_cast<double>(step) / static_cast<double>(steps) : 0;
  const std::string position = " " + step_text(step, steps);
  const int frame = style.unicode ? 0 : 2;
  const auto free_columns = [&] { return style.columns - frame - static_cast<int>(position.size()) - width_of(fields); };

  while (!fields.empty() && free_columns() < narrow_bar) {
    fields.erase(
        std::max_element(fields.begin(), fields.end(), [](const Field& a, const Field& b) { return a.rank < b.rank; }));
  }
  const int columns = std::min(free_columns(), wide_bar);
  std::string line = columns > 0 ? bar(style, fraction, columns) + position : position.substr(1);
  for (const Field& field : fields) line += "  " + field.text;
  return line;
}

std::string plain_text(const StepMetrics& metrics, std::int64_t steps, std::optional<std::chrono::seconds> eta) {
  std::string line = "step " + step_text(metrics.step, steps);
  line += fmt::format("  loss {:.4f}  lr {:.2e}  norm {:.3f}  {:.1f} ms  {} tok/s", metrics.loss, metrics.learning_rate,
                      metrics.grad_norm, metrics.step_ms, format_count(metrics.tokens_per_second));
  if (metrics.tflops_per_gpu) line += fmt::format("  {:.1f} TFLOP/s", *metrics.tflops_per_gpu);
  if (metrics.mfu) line += fmt::format("  MFU {:.1f}%", 100 * *metrics.mfu);
  if (metrics.peak_bytes) line += "  " + format_bytes(static_cast<double>(*metrics.peak_bytes));
  if (eta) line += "  ETA " + format_duration(*eta);
  if (metrics.ledger) {
    if (const std::string lost = lost_time_text(*metrics.ledger); !lost.empty()) line += "\n    " + lost;
  }
  return line;
}

std::string validation_text(std::int64_t step, std::int64_t steps, double loss) {
  loss = unsigned_nan(loss);
  return fmt::format("step {}  validation loss {:.4f}  perplexity {:.4g}", step_text(step, steps), loss, std::exp(loss));
}

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
