// Decides how a rank launches its steps: whole, as CUDA graphs, or instruction by instruction, "piecewise": train.graph.
//
// `auto` tries both if a run has one rank: results have the same bits either way, so the first steps are launched piecewise and
// the next ones whole, and the faster way stays. Several ranks would have to agree on it, and their launches of graphs with
// collectives in them may wait for each other inside of CUDA: they launch whole steps only if that is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/choices.h"

namespace plait::runtime {

class GraphTrial {
 public:
  // Steps are numbered from 0. The first ones of either way are not measured: they load and capture.
  static constexpr std::int64_t first_measured = 2;
  static constexpr std::int64_t first_whole = 14;
  // Each slot has a graph by then. A decision comes once the results of all steps before it are sure to be there.
  static constexpr std::int64_t first_whole_measured = 23, last_step = 39;

  // Each instruction is one launch already. A step as one launch saves some 0.1 ms more: too little for a step that takes
  // longer.
  static constexpr double longest_step_ms = 10;

  // `obstacle`: the reason why steps cannot be launched whole; empty: they can. ConfigError if they cannot but have to be.
  GraphTrial(GraphUse use, std::string obstacle, int ranks);

  // True if steps will or may be launched whole.
  bool may_be_whole() const { return whole_ || !settled_; }
  bool settled() const { return settled_; }
  bool is_whole(std::int64_t step) const { return whole_ && step >= first_measured; }
  // The text for the user. `piecewise`: how steps are launched otherwise, "kernel by kernel".
  std::string text(const std::string& piecewise) const;

  // Adds the time of a step. Steps come in order.
  void add(std::int64_t step, bool whole, double milliseconds);
  // If something is decided before `step`: the median time of the steps it is about (0: none was measured). Call decide() next,
  // with this value.
  std::optional<double> due(std::int64_t step) const;
  void decide(double milliseconds);

 private:
  bool whole_ = false, settled_ = true;
  std::string why_;
  std::vector<double> piecewise_, whole_times_;
  double piecewise_ms_ = 0, whole_ms_ = 0;  // 0: not measured
};

}  // namespace plait::runtime
