// Writes a study as tidy CSV (RFC 4180, UTF-8, a heading, full precision): one observation per line, one variable per column.
// Missing values are empty fields.
#pragma once

#include <string>

#include "study/study_data.h"

namespace plait::study {

// A line per point, including those that were not measured.
std::string points_csv(const StudyData& data);
// A line per round, in the order in which they ran.
std::string rounds_csv(const StudyData& data);
// A line per simulated point.
std::string simulated_csv(const StudyData& data);

}  // namespace plait::study
