// The runs of a study of losses: what `plait train` is called with for a point.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/point.h"
#include "study/study_folder.h"

namespace plait::study {

struct TrainingRun {
  std::vector<std::string> arguments;   // of plait
  std::filesystem::path run_directory;  // that it makes; what is there is of an attempt that was ended, and goes first
  std::string log;                      // a file's name
};

// points/NUMBER/run, and what has to be trained before it. Points of one size that differ in length only, with
// train.optimizer.schedule wsd, are forks of one trunk (wsd_forks): before its own decay a point trains the pieces of it,
// trunks/FIRST/step-..., that no other point has made yet, FIRST being the first point of the size. A length that would leave
// the trunk within the warm-up, or where a shorter one does, is trained alone.
std::vector<TrainingRun> training_runs(const StudyFolder& folder, const Point& point, const std::string& log);

// Where the last of them trains.
std::filesystem::path run_of(const StudyFolder& folder, const Point& point);

}  // namespace plait::study
