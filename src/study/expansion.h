// Expands `study.axes` into a list of points, without asking the planner yet.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/error.h"
#include "data/tokenizer.h"
#include "study/point.h"

namespace plait::study {

// The error on one line.
std::string problem_text(const ConfigError& error);

// A point as the axes describe it. Its configuration may still leave something to the planner.
struct Draft {
  Coordinates coordinates;
  std::optional<Config> config;  // nullopt if a rule forbids it
  int ranks = 0;                 // with `config`; without it 0 if the axes give no number of ranks
  std::optional<Pruning> pruning;
  std::string because;
};

// Every combination of the axes' values, the last axis fastest; `layout: all` stands for verify::all_layouts for that many
// ranks. Without axes, the configuration itself. Apart from the values of its axes, a point's configuration has:
//   - launch.ranks and parallel.data as numbers; `ranks_here` ranks if nothing gives a number
//   - launch.mode as given, threads for `auto`: an outside launcher's ranks are not a point's
//   - study.scaling applied: train.global_batch or model.layers times the number of ranks; for isoflop the shape and the steps
//     that isoflop_grid() gives for `flops` and `parameters`
//   - the sections that say nothing about how it runs (run except for the seed, verify, study, bounds) at their defaults
// Points that break a rule (Pruning::rule) or for which an expression of study.skip holds (Pruning::skip) are listed with the
// reason. ConfigError for invalid expressions, and if the axes list more than 100,000 points.
//
// `vocabulary`: of the tokenizer, needed for shapes of isoflop; it may take long, and is asked for each point.
using Vocabulary = std::function<std::int64_t(const Config&)>;
std::vector<Draft> expand(const Config& study, int ranks_here, const Vocabulary& vocabulary = data::vocabulary);

// expand() with `ranks` instead of the axes' launch.ranks, and with layouts without the `data` that belongs to other numbers of
// ranks; each different point once. For simulations.
std::vector<Draft> expand_at(const Config& study, int ranks);

// Prunes a draft whose configuration leaves nothing open any more, if study.skip says so.
void apply_skip(const Config& study, Draft& draft);

}  // namespace plait::study
