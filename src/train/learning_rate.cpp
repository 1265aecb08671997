#include "train/learning_rate.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plait::train {
namespace {

// The remaining share of the decay when the fraction `done` of its steps has been taken: 1 at 0, 0 at 1.
double left_of_decay(DecayShape shape, double done) {
  if (shape == DecayShape::cosine) return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return 1.0 - (shape == DecayShape::minus_sqrt ? std::sqrt(done) : done);
}

}  // namespace

LearningRate::LearningRate(const OptimizerConfig& config, std::int64_t steps)
    : decay_(config.schedule),
      shape_(config.schedule == Decay::cosine ? DecayShape::cosine
             : config.schedule == Decay::wsd  ? config.decay_shape
                                              : DecayShape::linear),
      lr_(config.lr),
      final_lr_(config.lr * config.min_lr_fraction),
      warmup_(config.warmup),
      steps_(steps),
      decay_start_(config.warmup) {
  if (decay_ == Decay::constant) decay_start_ = steps;
  if (decay_ == Decay::wsd) {
    const auto decay_steps = config.decay_steps.value_or(std::llround(config.decay_fraction * static_cast<double>(steps)));
    decay_start_ = std::max<std::int64_t>(warmup_, steps - decay_steps);
  }
}

double LearningRate::at(std::int64_t step) const {
  step = std::clamp<std::int64_t>(step, 0, std::max<std::int64_t>(steps_ - 1, 0));
  if (step < warmup_) return lr_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
  if (step < decay_start_ || decay_ == Decay::constant) return lr_;
  const double done = static_cast<double>(step - decay_start_ + 1) / static_cast<double>(steps_ - decay_start_);
  return final_lr_ + (lr_ - final_lr_) * left_of_decay(shape_, done);
}

std::string moved_schedule(const TrainConfig& before, const TrainConfig& now, std::int64_t step) {
  const LearningRate was(before.optimizer, before.steps), is(now.optimizer, now.steps);
  // Counted from 0. A completed run would have kept its last rate.
  const std::int64_t next = step, last = std::max(next, std::min(before.steps, now.steps) - 1);
  // Decays that begin at different steps differ where the later one begins, and those of two shapes a third of the way down.
  const std::int64_t falls = std::max(before.steps - was.decay_steps(), now.steps - is.decay_steps());
  std::int64_t first = -1;  // of the steps with another rate
  for (std::int64_t of : {next, last, falls - 1, falls + (last - falls) / 3}) {
    of = std::clamp(of, next, last);
    if (first < 0 && was.at(of) != is.at(of)) first = of == last ? next : of;
  }
  if (now.steps <= next || first < 0) return "";
  const std::string cause = before.steps != now.steps ? fmt::format("train.steps was {} and is {}", before.steps, now.steps)
                                                      : "train.optimizer changed";
  const auto at = [&](std::int64_t of) { return fmt::format("step {} from {:.3g} to {:.3g}", of + 1, was.at(of), is.at(of)); };
  return fmt::format("the learning-rate schedule ({}) moved, as {}: {}{}", to_string(now.optimizer.schedule), cause, at(first),
                     last > first ? ", " + at(last) : "");
}

}  // namespace plait::train
