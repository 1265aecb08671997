#include "study/simulated_points.h"

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "site/devices.h"
#include "site/site_planning.h"
#include "study/expansion.h"
#include "study/records.h"
#include "study/resolution.h"
#include "study/statistics.h"
#include "study/study_data.h"
#include "topology/device_profile.h"

namespace plait::study {
namespace {

constexpr std::size_t least_for_band = 5;

// A resolver for the machine that study.simulate describes, independent of this one.
Resolver simulating_resolver(const Config& study, int gpus) {
  const SimulateConfig& simulate = study.study.simulate;
  site::PlanningWish wish;
  if (simulate.device != "auto") wish.device = simulate.device;
  // A number of GPUs makes it a plan for GPUs.
  if (simulate.device != "auto" || site::choose_devices(study).kind != DeviceKind::host) wish.gpus = gpus;
  wish.topology = "live";
  wish.network = assumed_network(simulate);
  return Resolver(wish);
}

}  // namespace

void check_simulated_device(const Config& study) {
  const std::string& device = study.study.simulate.device;
  if (device != "auto") topology::nominal_profile(device, "study.simulate.device");
}

std::optional<PredictionBand> prediction_band(const StudyData& measured, const std::string& from) {
  std::vector<double> ratios;
  for (const Point& point : measured.points) {
    const auto rounds = measured.measured_rounds_of(point.index);
    if (rounds.empty() || !point.prediction || point.prediction->from != from || point.prediction->step_ms <= 0) continue;
    ratios.push_back(median(round_medians(rounds)) / point.prediction->step_ms);
  }
  if (ratios.size() < least_for_band) return std::nullopt;
  return PredictionBand{sample_quantile(ratios, 0.05), sample_quantile(ratios, 0.95)};
}

namespace {

// The band of predictions from the same figures as this one: from the study's measurements, else from known errors of the
// figures.
std::optional<PredictionBand> band_of(const Resolved& resolved, const StudyData* measured) {
  if (!resolved.prediction) return std::nullopt;
  if (measured != nullptr) {
    if (const auto band = prediction_band(*measured, resolved.prediction->from)) return band;
  }
  if (!resolved.interval) return std::nullopt;
  return PredictionBand{resolved.interval->best, resolved.interval->worst};
}

}  // namespace

std::vector<SimulatedPoint> simulate_points(const Config& study, const StudyData* measured, const Expression* only,
                                            const std::function<void(const SimulatedPoint&)>& notice) {
  std::vector<SimulatedPoint> points;
  for (const std::int64_t gpus : study.study.simulate.gpus) {
    Resolver resolver = simulating_resolver(study, static_cast<int>(gpus));
    for (const Draft& draft : expand_at(study, static_cast<int>(gpus))) {
      // The planner's decisions may still make it hold.
      if (only != nullptr && (!draft.config || only->holds(*draft.config) == false)) continue;
      SimulatedPoint point;
      point.coordinates = draft.coordinates;
      point.gpus = static_cast<int>(gpus);
      point.device = study.study.simulate.device;
      point.network = to_string(study.study.simulate.network);
      point.refused = draft.because;
      if (!draft.pruning) {
        const Resolved resolved = resolver.resolve(draft);
        if (only != nullptr && resolved.config && only->holds(*resolved.config) != true) continue;
        point.refused = resolved.problem;
        point.facts = resolved.facts;
        if (resolved.fits) point.prediction = resolved.prediction;
        if (const auto band = band_of(resolved, measured); band && point.prediction)
          point.least_ratio = band->least_ratio, point.most_ratio = band->most_ratio;
      }
      points.push_back(std::move(point));
      if (notice) notice(points.back());
    }
  }
  return points;
}

void write_simulated(const std::filesystem::path& folder, const std::vector<SimulatedPoint>& points) {
  std::string lines;
  for (const SimulatedPoint& point : points)
    lines += record_json(point).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  write_text_file(folder / "simulated.jsonl", lines);
}

}  // namespace plait::study
