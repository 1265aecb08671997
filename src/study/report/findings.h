// The common basis of a report's sections: a study's rows, the best of them, and figures as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/rows.h"
#include "study/study_data.h"

namespace plait::study {

// One account of a ledger. Together the accounts are the step.
struct Account {
  std::string name;  // "compute", "gradient buckets", ..., "bubble", "other"
  double ms = 0;     // for communication: exposed
};
std::vector<Account> accounts_of(const parallel::Ledger& ledger);

struct Findings {
  explicit Findings(const StudyData& data);

  const StudyData& data;
  std::vector<Row> rows;  // by point
  PlannerVerdict planner;
  bool same_model = true;  // for all measured or simulated points: then speed is tokens/s, else model TFLOP/s

  const Point& point(const Row& row) const { return data.points[static_cast<std::size_t>(row.point)]; }
  const PointFacts& facts(const Row& row) const { return point(row).facts.value(); }
  // True if it was measured at least once, and did not end with a failure.
  bool counts(const Row& row) const;
  std::vector<const Row*> measured() const;           // points that count, in order
  std::vector<const Row*> by_speed() const;           // these, fastest per device first
  std::vector<const Row*> best_of_each_size() const;  // by number of ranks: the fastest per device
  const Row* best() const;                            // with the most ranks; null if nothing was measured
  double best_memory_bytes(const Row& row) const;     // in use as far as known: on the device, else by plait

  const char* speed_unit() const { return same_model ? "tokens/s" : "TFLOP/s"; }
  double speed(const PointFacts& facts, double step_ms) const;  // of all devices together
  Estimate speed_per_device(const Row& row) const;
  // Predicted time per model FLOP and device, by which layouts are judged. nullopt without a prediction.
  std::optional<double> predicted_cost(const Point& point) const;
  std::string why_not_measured(const Row& row) const;  // "" for a point that is ok
};

std::string label_of(const Coordinates& coordinates);  // like Point::label
std::string runs_as(const PointFacts& facts);          // including the planner's choices: "data=2 tensor=1 ..."

// Four significant digits, thousands without an exponent: "0.01234", "12.3", "1234", "123456".
std::string figure(double value);
std::string figure(const Estimate& estimate);  // "12.3 (12.1 to 12.6)", without an interval "12.3"
std::string percent(double share);             // "12.3 %"
std::string percent(const Estimate& share);    // likewise

}  // namespace plait::study
