#include "study/report/report_json.h"

#include <cmath>

namespace plait::study {

namespace {

using Json = nlohmann::ordered_json;

Json axis_json(const Axis& axis) { return {{"title", axis.title}, {"logarithmic", axis.is_logarithmic}}; }

Json table_json(const Table& table) {
  Json json{{"columns", Json::array()}, {"rows", Json::array()}};
  for (const Column& column : table.columns) json["columns"].push_back(column.title);
  for (const std::vector<Cell>& row : table.rows) {
    Json cells = Json::array();
    for (const Cell& cell : row) cells.push_back(cell.text);
    json["rows"].push_back(std::move(cells));
  }
  return json;
}

}  // namespace

Json chart_json(const Chart& chart) {
  Json json{{"description", chart.description}, {"x", axis_json(chart.x)}, {"y", axis_json(chart.y)}};
  json["categories"] = chart.categories;
  json["stacked"] = chart.is_stacked;
  json["series"] = Json::array();
  for (const Series& series : chart.series) {
    Json values = Json::array();
    for (const ChartValue& value : series.values) {
      if (!std::isfinite(value.x) || !std::isfinite(value.y)) continue;
      Json& added = values.emplace_back(Json{{"x", value.x}, {"y", value.y}});
      if (value.interval && std::isfinite(value.interval->low) && std::isfinite(value.interval->high))
        added["low"] = value.interval->low, added["high"] = value.interval->high;
      added["label"] = value.label;
    }
    json["series"].push_back({{"name", series.name}, {"look", to_string(series.look)}, {"values", std::move(values)}});
  }
  return json;
}

Json report_json(const StudyData& data, const Report& report) {
  Json json = summary_json(data);
  Json& shown = json["report"];
  shown = {{"name", report.name}, {"about", report.about}};
  shown["sentences"] = report.sentences;
  shown["notes"] = report.notes;
  shown["sections"] = Json::array();
  for (const Section& section : report.sections) {
    shown["sections"].push_back({{"id", section.id},
                                 {"title", section.title},
                                 {"text", section.text},
                                 {"chart", section.chart ? chart_json(*section.chart) : Json()},
                                 {"table", table_json(section.table)}});
  }
  return json;
}

}  // namespace plait::study
