// Writes a comparison for people, programs and CI systems.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "study/compare/comparison.h"

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
