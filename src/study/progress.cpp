#include "study/progress.h"

#include <algorithm>
#include <tuple>

#include "config/schema.h"
#include "core/parse_number.h"
#include "study/study_data.h"

namespace plait::study {
std::vector<double> round_medians(const std::vector<const Round*>& measured) {
  std::vector<double> medians;
  for (const Round* round : measured) medians.push_back(median(round->measured.value().step_ms));
  return medians;
}

Interval step_interval(const std::vector<const Round*>& measured) { return median_interval(round_medians(measured)); }

bool is_settled(const MeasureConfig& measure, const std::vector<const Round*>& measured) {
  const config::RoundRange rounds = config::round_range(measure.rounds).value();
  const auto done = static_cast<int>(measured.size());
  if (done >= rounds.most) return true;
  const auto until = percentage(measure.until);
  if (done < std::max(rounds.least, least_rounds_for_interval) || !until) return false;
  const Interval interval = step_interval(measured);
  return interval.high - interval.low <= *until * median(round_medians(measured));
}

std::optional<int> baseline_of(const StudyData& data) {
  std::optional<int> best;
  // Fewest ranks, shortest predicted time per token; points without a prediction come last.
  const auto place = [](const Point& point) {
    const PointFacts& facts = point.facts.value();
    const double tokens = static_cast<double>(facts.tokens_per_step());
    return std::tuple(facts.ranks, !point.prediction, point.prediction ? point.prediction->step_ms / tokens : 0, point.index);
  };
  for (const Point& point : data.points) {
    if (point.pruning || data.failure_of(point.index) != nullptr) continue;
    if (!best || place(point) < place(data.points[static_cast<std::size_t>(*best)])) best = point.index;
  }
  return best;
}

}  // namespace plait::study
