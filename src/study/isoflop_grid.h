// Turns compute budgets and sizes into runs: the shapes of models, and how long each is trained (study.scaling: isoflop).
//
// N counts the matrices that multiply every token: it includes the output head, but not an input embedding that is only looked
// up. So 6 N is the FLOPs per token (model/model_flops.h). Kaplan et al. (2020) leave the head out as well, Hoffmann et al.
// (2022) count everything. For small models the head is much of the compute, and leaving it out shifts the exponents (Porian et
// al., "Resolving Discrepancies in Compute-Optimal Scaling of Language Models", 2024). Attention's own products grow with the
// sequence and are not in 6 N D.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace plait::study {

struct IsoflopRequest {
  std::vector<double> budgets;  // FLOPs: 6 N D
  std::vector<double> sizes;    // target values of N
  double aspect_ratio = 0;      // model.hidden / model.layers of all sizes; 0: that of the configuration's model
};

// The tolerance of a shape's N around its target, and of whole batches around the budget.
inline constexpr double size_tolerance = 0.25, budget_rounding = 0.02;

struct IsoflopPoint {
  double budget = 0, size = 0;  // as requested
  std::int64_t parameters = 0;  // N
  std::int64_t steps = 0, tokens = 0;
  double flops = 0;                    // 6 N D of whole steps
  std::vector<std::string> overrides;  // "model.layers=4", ...: turn the configuration into this point's
  std::string problem;                 // the reason why it cannot run; "" if it can
};

// The points of a grid, by size and then by budget. Everything but the shape and the steps is the base configuration's: family,
// vocabulary, width of a head, query heads per key/value head, ratio of ffn to hidden, batch, sequence. Since the batch is the
// same, so are the evaluated tokens (data/dataset.h), and losses are comparable. Heads are a multiple of the tensor-parallel
// size and of the query heads per key/value head.
//
// `vocab`: the tokenizer's. An impossible point has a `problem`, with the remedy: no shape near its size, too few steps to meet
// the budget in whole batches, a rule of the configuration. ConfigError for an invalid request: no budgets or sizes, values
// that are not positive and finite, repeated values, two sizes with the same shape.
std::vector<IsoflopPoint> isoflop_grid(const Config& base, std::int64_t vocab, const IsoflopRequest& request);

// Runs of different lengths of one model, as forks of one trunk (docs/checkpoints.md): each length computes only its decay.
struct TrunkFork {
  std::int64_t steps = 0;        // of the run, from the beginning
  std::int64_t fork_step = 0;    // step at which it leaves the trunk
  std::int64_t decay_steps = 0;  // steps - fork_step
  // The trunk's piece up to fork_step, started --with-optimizer from the piece before (the first one from the seed), and the
  // fork, started --with-optimizer from that piece.
  std::vector<std::string> trunk_overrides, fork_overrides;
};

// The `lengths` that leave the trunk after the warm-up, at a step at which no shorter one does; ascending, each once: the input
// of wsd_forks.
std::vector<std::int64_t> lengths_that_fork(const Config& base, std::vector<std::int64_t> lengths);

// Ascending in length. Uses train.optimizer.decay_steps, or decay_fraction of each length. ConfigError unless every fork leaves
// the trunk at a different step after the warm-up.
std::vector<TrunkFork> wsd_forks(const Config& base, std::vector<std::int64_t> lengths);

}  // namespace plait::study
