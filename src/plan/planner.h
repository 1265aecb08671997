// Finds the fastest way to run a job on a machine, and the reasons: lists every way, estimates all of them, and simulates the
// best.
//
//   enumerate (candidate.h) → estimate and sort (estimate.h) → for the best: programs, memory plan, placement
//   (placement/search.h), simulation (simulation/simulator.h) → the fastest that fits.
//
// The estimate decides which candidates are simulated; the simulator decides among those. First come the most promising of each
// layout, then the others, as long as their estimate (times `estimate_trust`) is below the best simulated time, and at most
// `most_looked_at` in all. If none of these fits, as many more that should fit by their estimate. Candidates are simulated on
// several threads; the answer does not depend on how many.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/candidate.h"
#include "plan/estimate.h"
#include "plan/placement/search.h"
#include "plan/simulation/simulator.h"
#include "plan/step_costs.h"

namespace plait::plan {

// A machine that jobs are planned for. Not thread-safe.
struct Site {
  Machine machine;
  topology::Fabric* fabric = nullptr;  // with at least as many GPUs as ranks
  DeviceKind kind = DeviceKind::cuda;
};

struct AxisLink {
  bool used = false;
  double min_gb_per_s = 0;
  std::string link;        // "NV18"
  int from = -1, to = -1;  // GPUs
  std::string shared;      // "4 groups share numa0 to numa1, smp", or ""
};

// One way to run the job, fully worked out.
struct Evaluation {
  Candidate candidate;
  double estimated_seconds = 0;
  PlacementResult placement;
  double step_seconds = 0;
  double bubble_fraction = 0;                                 // mean over ranks
  parallel::Ledger ledger;                                    // mean over ranks
  CriticalSums critical;                                      // seconds of the step, by what they were spent on
  std::vector<double> peak_bytes;                             // by pipeline rank, including what libraries need
  double library_bytes = 0;                                   // what libraries need on the fullest rank
  std::vector<std::pair<std::string, double>> bytes_by_kind;  // of the fullest rank, largest first
  AxisLink tensor, pipeline, data;
  bool extrapolated = false;  // some block times were measured only at other sizes

  double most_bytes() const;
};

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
  bool what_if = true;  // also search for what would change the answer
  int threads = 0;      // 0: one for each CPU, at most 4, since each needs the memory of a plan
};

struct PlannedJob {
  Config config;  // nothing left open
  Evaluation best;
  std::vector<Evaluation> alternatives;    // the best of each other layout, then the rest; each by predicted time
  std::vector<Rejected> rejected;          // by layout, in the order of enumeration
  std::vector<std::string> what_if;        // sentences
  std::vector<parallel::RankPlan> stages;  // of the best: the plan of one rank of each pipeline coordinate
  int enumerated = 0, fitting = 0;
  int looked_at = 0;  // planned, and simulated if they fit
};

// ConfigError if nothing can run: it names the rule or the memory that prevents it, and a setting that could run.
PlannedJob plan_job(const Config& config, std::int64_t vocab, int ranks, const Site& site, const PlannerOptions& options = {});

// Places and simulates a configuration that leaves nothing open. ConfigError as make_rank_plan and Placer::place.
Evaluation evaluate(const Config& config, std::int64_t vocab, int ranks, const Site& site, Placer& placer,
                    const PlacementOptions& options = {});

// The same from fewer micro-batches where there are many: from some number of them on a step takes equally longer with each, so
// two short steps tell about the long one. Memory is that of the whole step but for schedules that keep more of more
// micro-batches (gpipe), and those of files: they are evaluated whole. What does not fit is neither placed nor simulated: its
// evaluation has memory only. For ranking; within 0.5 % of evaluate() where that was compared (tests/plan/planner_test.cpp).
Evaluation evaluate_shortened(const Config& config, std::int64_t vocab, int ranks, const Site& site, Placer& placer,
                              const PlacementOptions& options = {});

// Simulates the step of job.best once more, with its timeline, on the site that it was planned for. For
// plan/simulation/simulated_trace.h.
Simulated simulate_choice(const PlannedJob& job, const Site& site);

// "" if it fits the memory; otherwise the largest items and by how many bytes the whole is too large.
std::string memory_problem(const Evaluation& evaluation, const Machine& machine);

// Device memory that libraries need in addition to the memory plan: without communicators, and with those of `plan`.
double context_bytes(const Machine& machine);
double library_bytes(const Machine& machine, const parallel::RankPlan& plan);

}  // namespace plait::plan
