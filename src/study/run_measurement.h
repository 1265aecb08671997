// The measurements of a training run, as a round of a study of losses (study.scaling: isoflop).
#pragma once

#include <filesystem>

#include "study/point.h"
#include "study/round.h"

namespace plait::study {

// Read from metrics.jsonl of a completed run. `step_ms`: the logged values, each the mean of the steps since the line before,
// without the first step, which includes start-up (unless there is no other). Memory is rank 0's; there are no ledgers.
// ConfigError naming file and line for an invalid file, and for a run that ended without a validation loss.
Measurement measurement_of_run(const std::filesystem::path& run_dir, const PointFacts& facts);

}  // namespace plait::study
