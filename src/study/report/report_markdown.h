// Writes a report as Markdown (CommonMark with tables, as GitHub and GitLab show it): the sentences and every table.
#pragma once

#include <string>

#include "study/report/report.h"

namespace plait::study {

// Names of studies and layouts, and messages of programs, are text: characters with a meaning in Markdown are escaped.
std::string to_markdown(const Report& report);

}  // namespace plait::study
