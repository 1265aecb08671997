// What an expert would do with a topology matrix and an afternoon: every way to run a job, judged, the best ones simulated on
// the machine, and the answer with its reasons.
//
//   enumerate (candidate.h) → estimate and sort (estimate.h) → for the best: programs, memory plan, placement
//   (placement/search.h), simulation (simulation/simulator.h) → the fastest that fits.
//
// The simulator decides among those that it sees; the estimate decides which those are: first the most promising of each
// layout, then the others, as long as their estimate (within `estimate_trust`) is below the best that was simulated, and
// `most_looked_at` at most. If none of these fits, as many of those that should by their estimate. Candidates are looked at on
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

// A machine that jobs are planned for. Not for several threads at once.
struct Site {
  Machine machine;
  topology::Fabric* fabric = nullptr;  // as many GPUs as ranks, or more
  DeviceKind kind = DeviceKind::cuda;
};

struct AxisLink {
  bool used = false;
  double min_gb_per_s = 0;
  std::string link;        // "NV18"
  int from = -1, to = -1;  // GPUs
  std::string shared;      // "4 groups share numa0 to numa1, smp", or ""
};

// One way to run the job, followed to the end.
struct Evaluation {
  Candidate candidate;
  double estimated_seconds = 0;
  PlacementResult placement;
  double step_seconds = 0;
  double bubble_fraction = 0;                                 // mean over ranks
  parallel::Ledger ledger;                                    // mean over ranks
  CriticalSums critical;                                      // seconds of the step, by what they went to
  std::vector<double> peak_bytes;                             // by pipeline rank, libraries' share included
  double library_bytes = 0;                                   // that share, of the fullest rank
  std::vector<std::pair<std::string, double>> bytes_by_kind;  // of the fullest rank, largest first
  AxisLink tensor, pipeline, data;
  bool extrapolated = false;  // some block times were measured at other sizes only

  double most_bytes() const;
};

struct EstimatedCandidate {
  Candidate candidate;
  double seconds = 0, bytes = 0;
};

struct PlannerOptions {
  int top = 5;  // alternatives that are kept, beside the best
  // 0: 48 up to 16 ranks and 24 beyond, where each takes longer.
  int most_looked_at = 0;
  int first_of_layout = 2;      // candidates of a layout that are looked at before more of another
  double estimate_trust = 0.9;  // an estimate may be this much of the true time and still deserve a look
  PlacementOptions placement = {};
  bool what_if = true;  // looks for what would change the answer
  int threads = 0;      // 0: one for each CPU, up to 4: each takes the memory of a plan
};

struct PlannedJob {
  Config config;  // nothing left open
  Evaluation best;
  std::vector<Evaluation> alternatives;    // in the order of predicted time; at most one of them for each layout comes first
  std::vector<Rejected> rejected;          // by layout, in the order of enumeration
  std::vector<std::string> what_if;        // sentences
  std::vector<parallel::RankPlan> stages;  // of the best: the plan of one rank of each pipeline coordinate
  int enumerated = 0, fitting = 0;
  int looked_at = 0;  // closely: planned, and simulated if it fits
};

// ConfigError if nothing can run: with the rule or the memory that stands in the way, and what would.
PlannedJob plan_job(const Config& config, std::int64_t vocab, int ranks, const Site& site, const PlannerOptions& options = {});

// A configuration without anything left open, placed and simulated. ConfigError as make_rank_plan and Placer::place.
Evaluation evaluate(const Config& config, std::int64_t vocab, int ranks, const Site& site, Placer& placer,
                    const PlacementOptions& options = {});

// The same from fewer micro-batches where there are many: from some number of them on a step takes equally longer with each, so
// two short steps tell about the long one. Memory is that of the whole step but for schedules that keep more of more
// micro-batches (gpipe), and those of files: they are evaluated whole. What does not fit is neither placed nor simulated: its
// evaluation has memory only. For ranking; within 0.5 % of evaluate() where that was compared (tests/plan/planner_test.cpp).
Evaluation evaluate_shortened(const Config& config, std::int64_t vocab, int ranks, const Site& site, Placer& placer,
                              const PlacementOptions& options = {});

// The step of job.best once more with its timeline, on the site that it was planned for: for plan/simulation/simulated_trace.h.
Simulated simulate_choice(const PlannedJob& job, const Site& site);

// Whether it fits: "" or the largest items and by how much they are too many.
std::string memory_problem(const Evaluation& evaluation, const Machine& machine);

// What libraries take of a device beside the memory plan: of any rank, and of one with its communicators.
double context_bytes(const Machine& machine);
double library_bytes(const Machine& machine, const parallel::RankPlan& plan);

}  // namespace plait::plan
