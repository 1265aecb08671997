// The planner finds the fastest way to run a job on a machine and explains it: it enumerates every candidate, estimates all of
// them, and simulates the best.
//
//   enumerate (candidate.h) → estimate and sort (estimate.h) → for the best: programs, memory plan, placement
//   (placement/search.h), simulation (simulation/simulator.h) → the fastest that fits.
//
// The estimate decides which candidates are simulated; the simulator decides among those. The most promising of each layout
// come first, then the others, as long as their estimate (times `estimate_trust`) is below the best simulated time, and at most
// `most_looked_at` in all. If none of these fits, as many more follow that should fit by their estimate. The estimate cuts a
// pipeline's stages by seconds; the best few by simulation are also evaluated with stages cut by FLOPs. Candidates are
// simulated on several threads; the answer does not depend on how many.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/task_progress.h"
#include "plan/candidate.h"
#include "plan/estimate.h"
#include "plan/evaluation.h"

namespace plait::plan {

struct EstimatedCandidate {
  Candidate candidate;
  double seconds = 0, bytes = 0;
};

struct PlannerOptions {
  int top = 5;  // alternatives to keep, besides the best
  // Candidates to simulate. 0: 48 up to 16 ranks, and 24 above, where each takes longer.
  int most_looked_at = 0;
  int first_of_layout = 2;      // candidates of each layout that come before all others
  double estimate_trust = 0.9;  // a candidate is simulated only if this much of its estimate beats the best simulated time
  PlacementOptions placement = {};
  bool what_if = true;  // also search for changes that would change the answer
  int threads = 0;      // 0: one for each CPU, at most 4, since each needs the memory of a plan
  ProgressCallback progress = {};
};

struct PlannedJob {
  Config config;                // nothing left open
  parallel::Decision decision;  // as given, and the passes that it lists
  Evaluation best;
  std::vector<Evaluation> alternatives;    // the best of each other layout, then the rest; each group by predicted time
  std::vector<Rejected> rejected;          // by layout, in the order of enumeration
  std::vector<std::string> what_if;        // sentences
  std::vector<parallel::RankPlan> stages;  // the plan of one rank of each pipeline coordinate of `best`
  int enumerated = 0, fitting = 0;
  int looked_at = 0;          // planned, and simulated if they fit
  bool lists_passes = false;  // the planner listed the passes of a planned schedule; the configuration had none
};

// ConfigError if nothing can run: it names the rule or the memory that prevents it, and a setting that could run.
PlannedJob plan_job(const Config& config, const parallel::Decision& decision, std::int64_t vocab, int ranks, const Site& site,
                    const PlannerOptions& options = {});

// Simulates the step of job.best once more, with its timeline, on the site that it was planned for.
// plan/simulation/simulated_trace.h shows the result.
Simulated simulate_choice(const PlannedJob& job, const Site& site);

}  // namespace plait::plan
