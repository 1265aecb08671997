// Simulates the points of a study on machines that are not available.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "study/expression.h"
#include "study/study_data.h"

namespace plait::study {

// ConfigError unless study.simulate.device is known.
void check_simulated_device(const Config& study);

// Every combination of study.axes at each of study.simulate.gpus instead of launch.ranks, on study.simulate's device and
// network: planned and simulated as by `plait plan`, with this machine's calibration if the device is this machine's. Points
// that cannot run there are listed with the reason. The band comes from the measurements of `measured`, the study so far
// (prediction_band), or without those from the device's nominal figures. With `only`, just the points whose configuration
// satisfies it. `notice` is told of each.
std::vector<SimulatedPoint> simulate_points(const Config& study, const StudyData* measured, const Expression* only = nullptr,
                                            const std::function<void(const SimulatedPoint&)>& notice = {});

// Measured / predicted step of those points of this study that were predicted `from` the same figures (Prediction::from), 5th
// and 95th percentile; nullopt for fewer than five.
struct PredictionBand {
  double least_ratio = 1, most_ratio = 1;
};
std::optional<PredictionBand> prediction_band(const StudyData& measured, const std::string& from);

void write_simulated(const std::filesystem::path& folder, const std::vector<SimulatedPoint>& points);

}  // namespace plait::study
