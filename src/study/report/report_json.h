// Writes a report as one JSON document, for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "study/report/report.h"

namespace plait::study {

// The output of `plait study --json` (summary_json), plus {"report": {"name", "about", "sentences", "notes", "sections":
// [{"id", "title", "text", "chart", "table": {"columns": [...], "rows": [[...]]}}]}}.
nlohmann::ordered_json report_json(const StudyData& data, const Report& report);

// A chart for the page's script: {"description", "x": {"title", "logarithmic"}, "y", "categories", "stacked", "series":
// [{"name", "look", "values": [{"x", "y", "low", "high", "label"}]}]}. Values that are not finite are left out.
nlohmann::ordered_json chart_json(const Chart& chart);

}  // namespace plait::study
