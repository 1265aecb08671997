// A candidate: one way to run a job, with every setting that the planner may choose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace plait::plan {

struct Candidate {
  AxisSizes size = single_rank;
  std::int64_t micro_batch = 1, virtual_stages = 1, zero = 0;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  // for ScheduleKind::file the configuration holds the file
  Recompute recompute = Recompute::none;
  std::vector<double> stages = {};  // transformer blocks of each; empty: as the configuration says, or by FLOPs
  friend bool operator==(const Candidate&, const Candidate&) = default;
  int ranks() const { return static_cast<int>(product(size)); }
  std::string layout() const;     // "pipeline 2 × data 2 × tensor 2"
  std::string to_string() const;  // with the other settings: "pipeline 2 × data 4 × tensor 1, zb-h1, micro-batch 2, zero 1"
};

// Returns the configuration with the candidate's values in place of its open settings and of the sizes of all axes.
Config with(const Config& config, const Candidate& candidate);

// A candidate that cannot run, and the reason, in words for a user.
struct Rejected {
  Candidate candidate;
  std::string reason;
};

struct Enumeration {
  std::vector<Candidate> candidates;  // in an order that depends only on the configuration
  std::vector<Rejected> rejected;     // whole layouts, each with the rule that it breaks
};

// Lists every combination of the settings that `config` leaves open, as far as its rules allow them on `ranks` ranks
// (problems_of). Micro-batches are the powers of two that divide a data-parallel rank's batch, and the whole batch. gpipe is
// left out: it is 1F1B with more memory. Without a pipeline there is no choice of schedules.
Enumeration enumerate(const Config& config, int ranks);

}  // namespace plait::plan
