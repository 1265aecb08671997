// A study's results as numbers one can defend: a row per point, and what they say of the planner.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "study/study_data.h"

namespace plait::study {

// A value and an interval that holds it with a probability of 95 %, or less of few rounds. Of fewer than two rounds there is
// none: its ends are NaN.
struct Estimate {
  double value = 0;
  Interval interval;
  bool has_interval() const;
};

struct Row {
  int point = 0;
  PointState state = PointState::ok;
  int rounds = 0;  // measured

  // From here on only where `rounds` is above 0.
  Estimate step_ms;                       // median of the rounds' medians; the interval by order statistics
  Estimate tokens_per_second_per_device;  // from it
  double model_flops_per_second_per_device = 0;
  std::optional<double> mfu, hfu;                                   // of the device's peak, 0..1
  parallel::Ledger ledger;                                          // mean over ranks and rounds
  double bubble_fraction = 0;                                       // of the ledger's step
  double planned_bytes = 0, allocated_bytes = 0, device_bytes = 0;  // of the fullest rank
  // Model FLOP/s per device, relative to the baseline's: the median of the ratios within rounds that have both, and a bootstrap
  // interval. Nothing without a baseline or such rounds. For points with the same model it is the ratio of tokens/s per device.
  std::optional<Estimate> efficiency;
  std::optional<double> prediction_error;  // predicted / measured - 1, of the step
  std::optional<double> memory_error;      // the same of the fullest rank's memory
  std::optional<double> joules_per_token;  // of all devices of rank 0's host
  std::optional<double> least_sm_clock_mhz;
  std::vector<std::string> throttle_reasons;
};

// By point. Seeded by the study's run.seed: the same data gives the same rows.
std::vector<Row> rows_of(const StudyData& data);

// The median of `a[i] / b[i]` over rounds i with a bootstrap interval: rounds are drawn with replacement, and steps within them
// (Davison and Hinkley 1997, section 3.8). Of one round there is no interval. Both have as many rounds, at least one, each with
// at least one step.
Estimate ratio_within_rounds(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b,
                             std::uint64_t seed);

// What the planner would have chosen among the points that were measured, and what was best: of two points at least that it
// could choose between (Point::job), of as many ranks.
struct Regret {
  int ranks = 0;
  int chosen = 0, best = 0;  // points
  bool was_asked = false;    // the choice is that of a point with `layout: auto`; else the one predicted fastest
  double regret = 0;         // how much longer the choice takes per model FLOP: 0.01 is 1 %
};

// A job whose choice, of a point with `layout: auto`, failed: it has no regret.
struct FailedChoice {
  int ranks = 0;
  int chosen = 0;  // point
};

struct PlannerVerdict {
  int points = 0;                                   // that were predicted and measured
  std::optional<double> median_error, worst_error;  // of the step, without its sign
  std::optional<double> rank_correlation;           // Spearman's, of predicted and measured time per token and rank
  std::vector<Regret> regrets;                      // by number of ranks, then by job
  std::vector<FailedChoice> failed_choices;         // likewise
  std::optional<double> regret() const;             // the largest
};
PlannerVerdict planner_verdict(const StudyData& data, const std::vector<Row>& rows);
std::string failed_choice_text(const StudyData& data, const FailedChoice& failed);  // a clause

// Spearman's rank correlation, equal values sharing their ranks; nothing for fewer than two values or where all are equal.
std::optional<double> rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

// What study.bounds does not allow, in words; empty if nothing.
std::vector<std::string> exceeded_study_bounds(const StudyData& data, const std::vector<Row>& rows,
                                               const PlannerVerdict& verdict);

// {"folder", "states": {...}, "baseline", "points": [...], "planner": {...}, "exceeded_bounds": [...]}; docs/studies.md.
nlohmann::ordered_json summary_json(const StudyData& data);

}  // namespace plait::study
