// A study's results as defensible numbers: a row per point, and a verdict on the planner.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "study/study_data.h"

namespace plait::study {

// A value with an interval that contains it with a probability of 95 %, or less with few rounds. With fewer than two rounds
// there is none: its ends are NaN.
struct Estimate {
  double value = 0;
  Interval interval;
  bool has_interval() const;
};

struct Row {
  int point = 0;
  PointState state = PointState::ok;
  int rounds = 0;  // measured

  // The following members are valid only if `rounds` is above 0.
  Estimate step_ms;                       // median of the rounds' medians; the interval by order statistics
  Estimate tokens_per_second_per_device;  // from it
  double model_flops_per_second_per_device = 0;
  std::optional<double> mfu, hfu;                                   // of the device's peak, 0..1
  parallel::Ledger ledger;                                          // mean over ranks and rounds
  double bubble_fraction = 0;                                       // of the ledger's step
  double planned_bytes = 0, allocated_bytes = 0, device_bytes = 0;  // of the fullest rank
  // Model FLOP/s per device, relative to the baseline's: the median of the ratios within rounds that have both, and a bootstrap
  // interval. nullopt without a baseline or such rounds. For points with the same model it is the ratio of tokens/s per device.
  std::optional<Estimate> efficiency;
  std::optional<double> prediction_error;  // predicted / measured - 1, of the step
  std::optional<double> memory_error;      // the same for the fullest rank's memory
  std::optional<double> joules_per_token;  // for all devices of rank 0's host
  std::optional<double> least_sm_clock_mhz;
  std::vector<std::string> throttle_reasons;
};

// By point. Seeded by the study's run.seed: the same data gives the same rows.
std::vector<Row> rows_of(const StudyData& data);

// The median of `a[i] / b[i]` over rounds i with a bootstrap interval: rounds are drawn with replacement, and steps within them
// (Davison and Hinkley 1997, section 3.8). One round gives no interval. Both have equally many rounds, at least one, each with
// at least one step.
Estimate ratio_within_rounds(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b,
                             std::uint64_t seed);

// The planner's choice among the measured points, and the best of them: for at least two points that it could choose between
// (Point::job), with equally many ranks.
struct Regret {
  int ranks = 0;
  int chosen = 0, best = 0;  // points
  bool was_asked = false;    // the choice is a point with `layout: auto`; else the one predicted fastest
  double regret = 0;         // how much longer the choice takes per model FLOP: 0.01 is 1 %
};

// A job whose choice, a point with `layout: auto`, failed: it has no regret.
struct FailedChoice {
  int ranks = 0;
  int chosen = 0;  // point
};

struct PlannerVerdict {
  int points = 0;                                   // predicted and measured
  std::optional<double> median_error, worst_error;  // of the step, in magnitude
  std::optional<double> rank_correlation;           // Spearman's, of predicted and measured time per token and rank
  std::vector<Regret> regrets;                      // by number of ranks, then by job
  std::vector<FailedChoice> failed_choices;         // likewise
  std::optional<double> regret() const;             // the largest
};
PlannerVerdict planner_verdict(const StudyData& data, const std::vector<Row>& rows);
std::string failed_choice_text(const StudyData& data, const FailedChoice& failed);  // a clause

// Spearman's rank correlation, with equal values sharing their ranks; nullopt for fewer than two values or if all are equal.
std::optional<double> rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

// The violations of study.bounds, in words; empty if there are none.
std::vector<std::string> exceeded_study_bounds(const StudyData& data, const std::vector<Row>& rows,
                                               const PlannerVerdict& verdict);

// {"folder", "states": {...}, "baseline", "points": [...], "planner": {...}, "exceeded_bounds": [...]}; docs/studies.md.
nlohmann::ordered_json summary_json(const StudyData& data);

}  // namespace plait::study
