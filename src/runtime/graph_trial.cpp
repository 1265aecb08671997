#include "runtime/graph_trial.h"

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/statistics.h"

namespace plait::runtime {
namespace {

// Whole steps must be faster by more than a hundredth: graphs take memory and keep steps from overlapping at their ends.
constexpr double worthwhile = 0.99;

// The median, or 0 without values.
double median_or_zero(const std::vector<double>& values) { return values.empty() ? 0 : median(values); }

}  // namespace

GraphTrial::GraphTrial(GraphUse use, std::string obstacle, int ranks) {
  if (use == GraphUse::off) {
    why_ = "train.graph is off";
  } else if (use == GraphUse::instructions) {
    why_ = "train.graph is instructions";
  } else if (!obstacle.empty()) {
    if (use == GraphUse::on) throw ConfigError({{"train.graph", "on", "cannot be: " + obstacle, "", 0}});
    why_ = std::move(obstacle);
  } else if (use == GraphUse::on) {
    whole_ = true;
    why_ = "train.graph is on";
  } else if (ranks > 1) {
    why_ = "of several ranks train.graph=auto launches no whole steps";
  } else {
    settled_ = false;
  }
}

std::string GraphTrial::text(const std::string& piecewise) const {
  if (!settled_) return fmt::format("whether a step as one launch (a CUDA graph) is faster, the first {} steps try", last_step);
  const auto taking = [](double ms) { return fmt::format("{:.3f} ms", ms); };
  const std::string how = whole_ ? "each step is one launch (a CUDA graph): " : "steps are launched " + piecewise + ": ";
  if (whole_ms_ <= 0) return how + why_;
  return how + (whole_ ? taking(whole_ms_) + ", " + piecewise + " " + taking(piecewise_ms_)
                       : taking(piecewise_ms_) + ", as one launch (a CUDA graph) " + taking(whole_ms_));
}

void GraphTrial::add(std::int64_t step, bool whole, double milliseconds) {
  if (settled_ || milliseconds <= 0) return;
  if (!whole && step >= first_measured && step < first_whole) piecewise_.push_back(milliseconds);
  if (whole && step >= first_whole_measured) whole_times_.push_back(milliseconds);
}

std::optional<double> GraphTrial::due(std::int64_t step) const {
  if (settled_) return std::nullopt;
  if (!whole_ && step >= first_whole) return median_or_zero(piecewise_);
  if (whole_ && step >= last_step) return median_or_zero(whole_times_);
  return std::nullopt;
}

void GraphTrial::decide(double milliseconds) {
  if (!whole_) {
    piecewise_ms_ = milliseconds;
    whole_ = piecewise_ms_ > 0 && piecewise_ms_ <= longest_step_ms;
    settled_ = !whole_;
    why_ = fmt::format("one of {:.4g} ms has little to gain as one launch", piecewise_ms_);
    return;
  }
  settled_ = true;
  whole_ = milliseconds > 0 && milliseconds < worthwhile * piecewise_ms_;
  whole_ms_ = milliseconds;
}

}  // namespace plait::runtime
