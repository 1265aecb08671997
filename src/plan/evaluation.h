// The full evaluation of one candidate on a machine: its programs, memory, placement, and a simulated step.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "parallel/rank_plan.h"
#include "plan/candidate.h"
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

// One candidate, fully worked out.
struct Evaluation {
  Candidate candidate;
  double estimated_seconds = 0;
  PlacementResult placement;
  double step_seconds = 0;
  double bubble_fraction = 0;                                 // mean over ranks
  parallel::Ledger ledger;                                    // mean over ranks
  CriticalSums critical;                                      // seconds of the critical path, by cause
  std::vector<double> rank_bytes;                             // by rank, with the libraries' share
  std::vector<double> peak_bytes;                             // by pipeline rank: of its fullest rank
  double library_bytes = 0;                                   // of the fullest rank
  std::vector<std::pair<std::string, double>> bytes_by_kind;  // of the fullest rank, largest first
  AxisArray<AxisLink> links;                                  // the slowest of each axis
  bool extrapolated = false;                                  // some segment times were measured only at other sizes

  double most_bytes() const;
};

// Places and simulates a configuration that leaves nothing open. ConfigError as make_rank_plan and Placer::place.
Evaluation evaluate(const Config& config, const parallel::Decision& decision, std::int64_t vocab, int ranks, const Site& site,
                    Placer& placer, const PlacementOptions& options = {});

// The plan of one rank of each pipeline coordinate, with the passes planned if that is open (plan/pass_planning.h); and the
// same evaluation of plans that are there already.
std::vector<parallel::RankPlan> stage_plans(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                            int ranks, const Site& site);
Evaluation evaluate_plans(const Config& config, const std::vector<parallel::RankPlan>& stages, const Site& site, Placer& placer,
                          const PlacementOptions& options);

// The same from fewer micro-batches where there are many: from some number of them on a step takes equally longer with each, so
// two short steps tell about the long one. Memory is that of the whole step but for schedules that keep more of more
// micro-batches (gpipe), and those of files: they are evaluated whole. What does not fit is neither placed nor simulated: its
// evaluation has memory only. For ranking; within 0.5 % of evaluate() where that was compared (tests/plan/planner_test.cpp).
Evaluation evaluate_shortened(const Config& config, const parallel::Decision& decision, std::int64_t vocab, int ranks,
                              const Site& site, Placer& placer, const PlacementOptions& options = {});

// The simulated step of a placement.
Simulated simulate_placed(const std::vector<parallel::RankPlan>& stages, const PlacementResult& placement, const Site& site,
                          const SimulationOptions& options = {});

// Returns "" if the evaluation fits the usable memory (Machine::usable_bytes). Otherwise says how much it needs, its largest
// items, and the settings that would make them smaller.
std::string memory_problem(const Evaluation& evaluation, const Machine& machine);

// "31.1 GiB of 31.7 GiB can be used (2 % stay free for the driver and for fragments)"
std::string usable_words(const Machine& machine);

// Device memory that libraries need beyond the memory plan: without communicators, and with those of `plan`.
double context_bytes(const Machine& machine);
double library_bytes(const Machine& machine, const parallel::RankPlan& plan);

}  // namespace plait::plan
