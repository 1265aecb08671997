// Measures a study: rounds of points in shuffled order, each point in its own process tree (with ranks on more than one node, a
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

// The latest round of a point, and the remaining work.
struct Advance {
  const Round* round = nullptr;  // the one that has just ended
  int done = 0, left = 0;        // rounds of points; left: the minimum, if no interval needs more
  double seconds_left = 0;       // estimate, for the remaining rounds
  std::optional<int> best = {};  // the point with the most model FLOP/s per device so far
};

struct RunnerOptions {
  std::string program;               // argv[0]
  const Expression* only = nullptr;  // measure only points for which it holds
  std::optional<int> round = {};     // measure only this one
  std::function<bool()> stop;        // asked every few milliseconds: true to stop
  std::function<void(const Advance&)> advanced;
  std::function<void(const std::string&)> say;
};

// The points that round `number` measures, in its order: those that the other rounds have neither ended nor settled, plus the
// baseline. The same for the same data, so that a resumed study continues where it was.
std::vector<int> points_of_round(const StudyData& data, int number);

// The rounds with points still to be measured, ascending: for a study whose rounds were measured by separate tasks.
std::vector<int> missing_rounds(const StudyData& data);

// ConfigError if points are to be measured whose ranks need more nodes than this process has (srun_step.h). Returns the reason
// why it stopped; the study's folder has it too. DeviceError if the devices do not recover from a point.
StopReason measure_study(StudyFolder& folder, const RunnerOptions& options);

// The command that continues a study, or one round of it.
std::string go_on_command(const std::filesystem::path& folder, std::optional<int> round);

// Run by a child of a study after a point has failed: tests memory and work on every device. DeviceError if one fails.
void check_devices();

}  // namespace plait::study
