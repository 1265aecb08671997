// Decides what a study still has to measure: pure functions of its data.
#pragma once

#include <optional>
#include <vector>

#include "config/config.h"
#include "core/statistics.h"
#include "study/round.h"

namespace plait::study {

struct StudyData;

// The median step time of a point, one value per round: the medians of its rounds' steps.
std::vector<double> round_medians(const std::vector<const Round*>& measured);

// The number of values that a 95 % interval by order statistics needs (core/statistics.h).
inline constexpr int least_rounds_for_interval = 6;

// The interval of a point's step time, by the order statistics of its rounds' medians; with too few rounds for 95 % (five or
// fewer) it spans all of them.
Interval step_interval(const std::vector<const Round*>& measured);

// True if a point needs no further round: it has the maximum of study.measure.rounds, or the minimum, at least six, and an
// interval that is as narrow as study.measure.until.
bool is_settled(const MeasureConfig& measure, const std::vector<const Round*>& measured);

// The point that efficiencies are relative to: among the points that can be measured and have not failed, the one with the
// fewest ranks; among these the one predicted fastest per token; then the first. nullopt if there is none.
std::optional<int> baseline_of(const StudyData& data);

}  // namespace plait::study
