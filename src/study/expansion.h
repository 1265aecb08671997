// From `study.axes` to a list of points, without asking the planner yet.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/error.h"
#include "data/tokenizer.h"
#include "study/point.h"

namespace plait::study {

// What is wrong, in one line.
std::string problem_text(const ConfigError& error);

// A point as the axes describe it. Its configuration may still leave something to the planner.
struct Draft {
  Coordinates coordinates;
  std::optional<Config> config;  // nothing where a rule forbids it
  int ranks = 0;                 // with `config`; without it 0 where the axes give no number of ranks
  std::optional<Pruning> pruning;
  std::string because;
};

// Every combination of the axes' values, the last axis fastest; `layout: all` stands for verify::all_layouts of as many ranks.
// Without axes, the configuration itself. What the configuration of a point has, besides the values of its axes:
//   - launch.ranks and parallel.data as numbers; with `ranks_here` ranks where nothing says how many
//   - launch.mode as it was said, threads for `auto`: an outside launcher's ranks are none of a point's
//   - study.scaling applied: train.global_batch or model.layers times the number of ranks; of isoflop the shape and the steps
//     that isoflop_grid() gives for `flops` and `parameters`
//   - the sections that say nothing about how it runs (run but for the seed, verify, study, bounds) at their defaults
// Points that break a rule (Pruning::rule) or for which an expression of study.skip holds (Pruning::skip) are listed with the
// reason. ConfigError for expressions that are none, and where the axes list more than 100,000 points.
//
// `vocabulary`: the tokenizer's, which shapes of isoflop need; it may take long, and is asked for each point.
using Vocabulary = std::function<std::int64_t(const Config&)>;
std::vector<Draft> expand(const Config& study, int ranks_here, const Vocabulary& vocabulary = data::vocabulary);

// The same with `ranks` in place of what the axes say of launch.ranks, and layouts without the `data` that goes with other
// numbers of ranks; each different point once. For simulations.
std::vector<Draft> expand_at(const Config& study, int ranks);

// Where study.skip says so, prunes a draft whose configuration leaves nothing open any more.
void apply_skip(const Config& study, Draft& draft);

}  // namespace plait::study
