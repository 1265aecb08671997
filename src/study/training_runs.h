// The runs of a study of losses (study.scaling: isoflop): the `plait train` commands for a point, and the measurements of a run
// as a round.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/point.h"
#include "study/study_folder.h"

namespace plait::study {

struct TrainingRun {
  std::vector<std::string> arguments;   // for plait
  std::filesystem::path run_directory;  // to be made; the remains of an attempt that was ended are removed first
  std::string log;                      // name of a file
};

// points/NUMBER/run, and the runs that must be trained before it. Points of one size that differ only in length, with
// train.optimizer.schedule wsd, are forks of one trunk (wsd_forks): before its own decay a point trains the pieces of the
// trunk, trunks/FIRST/step-..., that no other point has made yet, FIRST being the first point of the size. A length that would
// leave the trunk within the warm-up, or at the same step as a shorter one, is trained alone.
std::vector<TrainingRun> training_runs(const StudyFolder& folder, const Point& point, const std::string& log);

// The directory in which the last of them trains.
std::filesystem::path run_of(const StudyFolder& folder, const Point& point);

// Read from metrics.jsonl of a completed run. `step_ms`: the logged values, each the mean of the steps since the line before,
// without the first step, which includes start-up (unless there is no other). Memory is rank 0's; there are no ledgers.
// ConfigError naming file and line for an invalid file, and for a run that ended without a validation loss.
Measurement measurement_of_run(const std::filesystem::path& run_dir, const PointFacts& facts);

}  // namespace plait::study
