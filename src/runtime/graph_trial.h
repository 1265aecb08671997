// Whether a rank launches its steps whole, as CUDA graphs, or instruction by instruction, "piecewise": train.graph.
//
// `auto` tries it where a run has one rank: results have the same bits either way, so its first steps are launched piecewise
// and the next ones whole, and what took less time stays. Several ranks would have to agree on it, and their launches of graphs
// with collectives in them may wait for each other inside of CUDA: they launch whole steps only where that is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/choices.h"

namespace plait::runtime {

class GraphTrial {
 public:
  // Steps are counted from 0. The first ones of either kind are not counted: they load and capture.
  static constexpr std::int64_t first_measured = 2;
  static constexpr std::int64_t first_whole = 14;
  // By then each slot has a graph. A step is decided about once the results of those before it are there for certain.
  static constexpr std::int64_t first_whole_measured = 23, last_step = 39;

  // Instructions are one launch each already. A step as one saves some 0.1 ms besides: too little of a step that takes longer.
  static constexpr double longest_step_ms = 10;

  // `obstacle`: why steps cannot be launched whole; empty: they can. ConfigError where they have to be.
  GraphTrial(GraphUse use, std::string obstacle, int ranks);

  // Steps will or may be launched whole.
  bool may_be_whole() const { return whole_ || !settled_; }
  bool settled() const { return settled_; }
  bool is_whole(std::int64_t step) const { return whole_ && step >= first_measured; }
  // For the user. `piecewise`: how steps are launched otherwise, "kernel by kernel".
  std::string text(const std::string& piecewise) const;

  // A result, in order.
  void add(std::int64_t step, bool whole, double milliseconds);
  // Where something is decided before `step`: what the steps took. Then decide() comes next, with that.
  std::optional<double> due(std::int64_t step) const;
  void decide(double milliseconds);

 private:
  bool whole_ = false, settled_ = true;
  std::string why_;
  std::vector<double> piecewise_, whole_times_;
  double piecewise_ms_ = 0, whole_ms_ = 0;  // 0: not measured
};

}  // namespace plait::runtime
