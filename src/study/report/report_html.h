// Writes a report as one self-contained HTML page: style, script, charting library (Chart.js, with its licence) and data are in
// it, and its content security policy forbids all requests.
//
// The page shows every table without a script; with one, charts above them. It follows the reader's light or dark scheme, and
// is light on paper.
#pragma once

#include <string>

#include "study/report/report.h"

namespace plait::study {

// All text of the report is escaped: as HTML by the template library (Mustache), as JSON inside a script element so that no
// value can end the element.
std::string to_html(const Report& report);

}  // namespace plait::study
