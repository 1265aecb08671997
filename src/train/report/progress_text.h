// Formats the lines that Progress shows, as pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "train/report/step_metrics.h"

namespace plait::train {

struct LineStyle {
  int columns = 80;      // limit of the visible width: first the least important numbers are left out, then the bar shrinks
  bool unicode = false;  // draws the bar with box-drawing characters
  bool color = false;    // tints the bar
};

// "[#####-----] 420/1000  loss 3.2145  1.26M tok/s  58.3 ms  ETA 0:34  grad norm 0.82  ..."
std::string status_text(const LineStyle& style, std::int64_t step, std::int64_t steps, const std::optional<StepMetrics>& latest,
                        std::optional<double> validation_loss, std::optional<std::chrono::seconds> eta);

// "step  420/1000  loss 3.2145  lr 5.8e-04  ...": columns of fixed width, so that lines align; and a second line for the losses
// in the ledger, if they are worth it.
std::string plain_text(const StepMetrics& metrics, std::int64_t steps, std::optional<std::chrono::seconds> eta);

// "step  420/1000  validation loss 3.3012  perplexity 27.1"
std::string validation_text(std::int64_t step, std::int64_t steps, double loss);

std::string indented(const std::string& text);  // every line by four spaces

}  // namespace plait::train
