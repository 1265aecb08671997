// Compares two studies of the same configurations, point by point, to see if plait has become slower; and writes the comparison
// for people, programs and CI systems.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/names.h"
#include "study/statistics.h"
#include "study/study_data.h"

namespace plait::study {

// Compares two studies of the same configurations, point by point, to see if plait has become slower.
enum class Change {
  same,         // the factor's interval lies within the threshold
  faster,       // significantly, and by at least the threshold
  slower,       // likewise
  cannot_tell,  // none of these: too few rounds, or too much noise
  broken,       // measured before, and now failed
};

// An account of the ledger that takes longer than before.
struct Growth {
  std::string account;  // "gradient buckets"
  double old_ms = 0, new_ms = 0;
  double ms() const { return new_ms - old_ms; }
};

struct ComparedPoint {
  int old_point = 0, new_point = 0;
  std::string label;  // of the new one
  Change change = Change::cannot_tell;
  std::size_t old_rounds = 0, new_rounds = 0;
  double old_step_ms = 0, new_step_ms = 0;  // medians over rounds; 0 if broken
  Factor factor = {};                       // new step / old step
  double p = 1;                       // of the rank-sum test of the rounds' medians, with Holm's correction for all points
  std::optional<Growth> growth = {};  // of the account that grew most, if any did; medians over rounds of means over ranks
  std::string because;                // for cannot_tell and broken: the reason in words
  // True if the factor's interval has 95 %: with fewer rounds it is only the range of the factor (factor_between).
  bool has_interval() const;
};

// A point without a partner.
struct LonePoint {
  int point = 0;
  std::string label;
  std::string because;  // "only in OLD", "not measured in NEW: pruned: ..."
};

struct Comparison {
  std::string old_folder, new_folder, old_commit, new_commit;
  double threshold = 0;            // minimum growth of a step: study.bounds.regression of the new study, else of the old
  std::string other_machine = {};  // "" for one machine; else both, in words
  std::vector<ComparedPoint> points = {};
  std::vector<LonePoint> lone = {};
  std::size_t count(Change change) const;
  bool is_regression() const { return count(Change::slower) + count(Change::broken) > 0; }
};

// Points are equal if their resolved configurations are, without the names of the run (run.name, run.dir) and the sections that
// say nothing about how a point runs; plait's commit is not part of it. ConfigError if the machines differ
// (Environment::machine), unless that is allowed, or if no point is in both.
struct ComparisonOptions {
  bool allow_other_machine = false;
};
Comparison compare(const StudyData& before, const StudyData& after, const ComparisonOptions& options = {});

}  // namespace plait::study

namespace plait {
template <>
inline constexpr auto names<study::Change> = std::to_array<Name<study::Change>>({{study::Change::slower, "slower"},
                                                                                 {study::Change::broken, "broken"},
                                                                                 {study::Change::faster, "faster"},
                                                                                 {study::Change::same, "same"},
                                                                                 {study::Change::cannot_tell, "cannot tell"}});
}  // namespace plait

namespace plait::study {

// A line per point, then the points that cannot be compared, and a summary.
std::string comparison_text(const Comparison& comparison, int width);

// {"old", "new": {"folder", "commit"}, "threshold", "other_machine", "points": [{"label", "old_point", "new_point", "change",
// "old_step_ms", "new_step_ms", "factor", "interval", "p", "rounds": [old, new], "growth": {"account", "old_ms", "new_ms"},
// "because"}], "lone": [{"point", "label", "because"}], "counts": {"slower", ...}, "regression"}. Missing values are null: an
// interval of 95 % needs enough rounds.
nlohmann::ordered_json to_json(const Comparison& comparison);

// A case per point: slower is a failure, broken an error; undecided and incomparable points are skipped, with the reason.
std::string to_junit(const Comparison& comparison);

}  // namespace plait::study
