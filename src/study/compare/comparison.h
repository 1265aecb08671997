// Whether plait has become slower: two studies of the same configurations, point by point.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/names.h"
#include "study/compare/rank_test.h"
#include "study/study_data.h"

namespace plait::study {

enum class Change {
  same,         // the interval of the factor lies within the threshold
  faster,       // significantly, and by the threshold at least
  slower,       // likewise
  cannot_tell,  // neither: too few rounds, or too much noise
  broken,       // it was measured before, and now ends in a failure
};

// One account of the ledger that takes longer than before.
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
  double old_step_ms = 0, new_step_ms = 0;  // medians over rounds; 0 where it is broken
  Factor factor;                            // new step / old step
  double p = 1;                             // of the rank-sum test of the rounds' medians, corrected (Holm) for all points
  std::optional<Growth> growth;             // the account that grew most, if any did; medians over rounds of means over ranks
  std::string because;                      // of cannot_tell and broken: in words
  // Whether the factor's interval is one of 95 %: of fewer rounds it is only what the factor ranges over (rank_test.h).
  bool has_interval() const;
};

// A point with nothing to compare it with.
struct LonePoint {
  int point = 0;
  std::string label;
  std::string because;  // "only in OLD", "not measured in NEW: pruned: ..."
};

struct Comparison {
  std::string old_folder, new_folder, old_commit, new_commit;
  double threshold = 0;       // by which a step must have grown: study.bounds.regression of the new study, else of the old
  std::string other_machine;  // "" on one machine; else both, in words
  std::vector<ComparedPoint> points;
  std::vector<LonePoint> lone;
  std::size_t count(Change change) const;
  bool is_regression() const { return count(Change::slower) + count(Change::broken) > 0; }
};

// Points are the same if their resolved configurations are, without what only names the run (run.name, run.dir) and the
// sections that say nothing about how a point runs; plait's commit is not part of it. ConfigError if the machines differ
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
