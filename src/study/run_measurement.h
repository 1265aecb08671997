// What a training run measured, as a round of a study of losses (study.scaling: isoflop).
#pragma once

#include <filesystem>

#include "study/point.h"
#include "study/round.h"

namespace plait::study {

// From metrics.jsonl of a run that has come to its last step. `step_ms`: what is logged, each the mean of the steps since the
// line before, without the first step, which still starts things up (unless there is no other). Memory is rank 0's; there are
// no ledgers. ConfigError naming file and line for what is no such file, and for a run that ended without a validation loss.
Measurement measurement_of_run(const std::filesystem::path& run_dir, const PointFacts& facts);

}  // namespace plait::study
