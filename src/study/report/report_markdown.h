// A report as Markdown (CommonMark with tables, as GitHub and GitLab show it): the sentences and every table.
#pragma once

#include <string>

#include "study/report/report.h"

namespace plait::study {

// Names of studies and layouts, and messages of programs, are text: what Markdown would take for markup is escaped.
std::string to_markdown(const Report& report);

}  // namespace plait::study
