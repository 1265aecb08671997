// One way to run a job: everything that the planner may choose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"

namespace plait::plan {

struct Candidate {
  std::int64_t data = 1, tensor = 1, pipeline = 1, micro_batch = 1, virtual_stages = 1, zero = 0;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  // of ScheduleKind::file the configuration has the file
  Recompute recompute = Recompute::none;
  std::vector<std::int64_t> stages = {};  // transformer blocks of each; empty: as the configuration says, or by FLOPs
  friend bool operator==(const Candidate&, const Candidate&) = default;
  int ranks() const { return static_cast<int>(data * tensor * pipeline); }
  std::string layout() const;     // "pipeline 2 × data 2 × tensor 2"
  std::string to_string() const;  // with what else differs: "pipeline 2 × data 4 × tensor 1, zb-h1, micro-batch 2, zero 1"
};

// The configuration with these values in place of what it leaves open (and of parallel.data).
Config with(const Config& config, const Candidate& candidate);

// A choice that leads nowhere, and why, in words for a user.
struct Rejected {
  Candidate candidate;
  std::string reason;
};

struct Enumeration {
  std::vector<Candidate> candidates;  // in an order that depends on nothing but the configuration
  std::vector<Rejected> rejected;     // whole layouts: the rule that they break
};

// Every value of what `config` leaves open that its rules allow on `ranks` ranks (problems_of). Micro-batches are powers of two
// and the largest that fits the batch; gpipe is left out, which is 1F1B with more memory, and so are schedules without a
// pipeline.
Enumeration enumerate(const Config& config, int ranks);

}  // namespace plait::plan
