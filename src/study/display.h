// The texts that a study shows while it runs, and its tables.
#pragma once

#include <string>

#include "study/rows.h"
#include "study/runner.h"

namespace plait::study {

// "ok             round 2  ranks=2 layout=auto: 12.31 ms a step": a line for each round.
std::string round_line(const StudyData& data, const Round& round);

// "12 of about 36 rounds, 4:10 left; best so far ranks=2 layout=auto": the line that changes.
std::string advance_line(const StudyData& data, const Advance& advance);

// Every point with its state, cost and predicted step, and the reason if it is pruned; then the number of each, and the least
// and most time that measuring them will take.
std::string dry_run_table(const Config& study, const std::vector<Point>& points, int width);

// Every point with its measurements, then the verdict on the planner.
std::string result_table(const StudyData& data, int width);

std::string simulated_table(const std::vector<SimulatedPoint>& points, int width);

}  // namespace plait::study
