// Measures a study: rounds of points in shuffled order, each point a process tree of its own (with ranks on several nodes, a
// step of a Slurm allocation), until the intervals are narrow.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "study/expression.h"
#include "study/study_folder.h"

namespace plait::study {

// What has happened and what is left, after each round of a point.
struct Advance {
  const Round* round = nullptr;  // that has just ended
  int done = 0, left = 0;        // rounds of points; left: at least, if no interval needs more
  double seconds_left = 0;       // estimate, for the rounds that are left
  std::optional<int> best = {};  // the point with the most model FLOP/s per device so far
};

struct RunnerOptions {
  std::string program;               // argv[0]
  const Expression* only = nullptr;  // measure only points for which it holds
  std::optional<int> round = {};     // measure only this one
  std::function<bool()> stop;        // asked every few milliseconds: end here
  std::function<void(const Advance&)> advanced;
  std::function<void(const std::string&)> say;
};

// The points that round `number` measures, in its order: those that the other rounds have neither ended nor settled; and with
// them the baseline. The same for the same data, so that a resumed study goes on where it was.
std::vector<int> points_of_round(const StudyData& data, int number);

// The rounds in which something is still to be measured, ascending: of a study whose rounds were measured by several tasks.
std::vector<int> missing_rounds(const StudyData& data);

// ConfigError where points are to be measured whose ranks are on more nodes than this process has (srun_step.h). Returns why it
// stopped; the study's folder has it too. DeviceError where the devices do not recover from what a point did.
StopReason measure_study(StudyFolder& folder, const RunnerOptions& options);

// The command that goes on with a study, or with one round of it.
std::string go_on_command(const std::filesystem::path& folder, std::optional<int> round);

// What a child of a study runs after a point has failed: memory and work on every device. DeviceError if one does not do.
void check_devices();

}  // namespace plait::study
