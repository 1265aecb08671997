// The points of a study on machines that are not there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "study/expression.h"
#include "study/study_data.h"

namespace plait::study {

// ConfigError unless something is known of study.simulate.device.
void check_simulated_device(const Config& study);

// Every combination of study.axes at each of study.simulate.gpus in place of launch.ranks, on study.simulate's device and
// network: planned and simulated as `plait plan` does it, with this machine's calibration where the device is this machine's.
// What cannot run there is listed with the reason. The band is of what `measured`, the study so far, says of predictions
// (prediction_band), or where that is nothing of the device's nominal figures. With `only`, those alone whose configuration it
// holds for. `notice` is told of each.
std::vector<SimulatedPoint> simulate_points(const Config& study, const StudyData* measured, const Expression* only = nullptr,
                                            const std::function<void(const SimulatedPoint&)>& notice = {});

// Measured / predicted step of those of this study's points that were predicted `from` the same figures (Prediction::from), 5th
// and 95th percentile; nothing for fewer than five.
struct PredictionBand {
  double least_ratio = 1, most_ratio = 1;
};
std::optional<PredictionBand> prediction_band(const StudyData& measured, const std::string& from);

void write_simulated(const std::filesystem::path& folder, const std::vector<SimulatedPoint>& points);

}  // namespace plait::study
