// Writes a report: as a page, as Markdown, as JSON, and a study's tables as CSV.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "study/report/report.h"

namespace plait::study {

// One self-contained HTML page: style, script, charting library (Chart.js, with its licence) and data are in it, and its
// content security policy forbids all requests. The page shows every table without a script; with one, charts above them. It
// follows the reader's light or dark scheme, and is light on paper. All text of the report is escaped: as HTML by the template
// library (Mustache), as JSON inside a script element so that no value can end the element.
std::string to_html(const Report& report);

// Markdown (CommonMark with tables, as GitHub and GitLab show it): the sentences and every table. Names of studies and layouts,
// and messages of programs, are text: characters with a meaning in Markdown are escaped.
std::string to_markdown(const Report& report);

// The output of `plait study --json` (summary_json), plus {"report": {"name", "about", "sentences", "notes", "sections":
// [{"id", "title", "text", "chart", "table": {"columns": [...], "rows": [[...]]}}]}}.
nlohmann::ordered_json report_json(const StudyData& data, const Report& report);

// A chart for the page's script: {"description", "x": {"title", "logarithmic"}, "y", "categories", "stacked", "series":
// [{"name", "look", "values": [{"x", "y", "low", "high", "label"}]}]}. Values that are not finite are left out.
nlohmann::ordered_json chart_json(const Chart& chart);

// Tidy CSV (RFC 4180, UTF-8, a heading, full precision): one observation per line, one variable per column. Missing values are
// empty fields.

// A line per point, including those that were not measured.
std::string points_csv(const StudyData& data);
// A line per round, in the order in which they ran.
std::string rounds_csv(const StudyData& data);
// A line per simulated point.
std::string simulated_csv(const StudyData& data);

}  // namespace plait::study
