// The learning rate as a pure function of the step: there is no state to save, and any step can be asked for.
#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"

namespace plait::train {

// Steps count from 0. Over the first `warmup` steps the rate rises linearly and reaches `lr` at step warmup - 1. Then
//   constant  stays there;
//   cosine    follows half a cosine down to lr · min_lr_fraction, reached exactly at the last step (steps - 1);
//   linear    falls there in a straight line;
//   wsd       stays there until the last decay_steps steps (or decay_fraction of the steps), over which it falls to
//             lr · min_lr_fraction by decay_shape (warm-up, stable, decay: Hu et al., "MiniCPM", 2024; 1 - sqrt: Hägele et al.,
//             "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", 2024).
// Warm-up comes first where the two overlap. Steps past the end keep the last one's rate.
class LearningRate {
 public:
  LearningRate(const OptimizerConfig& config, std::int64_t steps);
  double at(std::int64_t step) const;
  // Number of steps at the end in which the rate falls; 0 for constant.
  std::int64_t decay_steps() const { return steps_ > decay_start_ ? steps_ - decay_start_ : 0; }

 private:
  Decay decay_;
  DecayShape shape_;
  double lr_, final_lr_;
  std::int64_t warmup_, steps_;
  std::int64_t decay_start_;  // first step of the decay
};

// Describes, for a run that goes on after step `step` (updates done), where another number of steps moves its learning rates.
// Empty if every step keeps its rate.
std::string moved_schedule(const TrainConfig& before, const TrainConfig& now, std::int64_t step);

}  // namespace plait::train
