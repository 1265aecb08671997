#include "study/report/writers.h"

#include <cmath>

#include "core/error.h"
#include "study/records.h"
#include "study/rows.h"

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

Json estimate_json(const Estimate& estimate) {
  const Json interval = estimate.has_interval() ? Json{estimate.interval.low, estimate.interval.high} : Json();
  return {{"value", estimate.value}, {"interval", interval}};
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json row_json(const StudyData& data, const Row& row) {
  const Point& point = data.points[static_cast<std::size_t>(row.point)];
  Json json{{"point", row.point}, {"id", point.id}, {"label", point.label()}, {"state", to_string(row.state)}};
  json["coordinates"] = Json::object();
  for (const auto& [key, value] : point.coordinates) json["coordinates"][key] = value;
  if (point.pruning) json["pruned"] = to_string(*point.pruning), json["because"] = point.pruned_because;
  if (point.same_as) json["same_as"] = *point.same_as;
  if (const Round* failure = data.failure_of(row.point)) {
    json["message"] = failure->message;
    json["log"] = failure->log;
  }
  if (point.facts) json["facts"] = record_json(*point.facts);
  if (point.prediction) json["predicted"] = record_json(*point.prediction);
  json["rounds"] = row.rounds;
  if (row.rounds == 0) return json;
  json["step_ms"] = estimate_json(row.step_ms);
  json["tokens_per_second_per_device"] = estimate_json(row.tokens_per_second_per_device);
  json["model_flops_per_second_per_device"] = row.model_flops_per_second_per_device;
  json["mfu"] = or_null(row.mfu), json["hfu"] = or_null(row.hfu);
  json["efficiency"] = row.efficiency ? estimate_json(*row.efficiency) : Json();
  json["ledger"] = record_json(row.ledger);
  json["bubble_fraction"] = row.bubble_fraction;
  json["memory"] = {
      {"planned_bytes", row.planned_bytes}, {"allocated_bytes", row.allocated_bytes}, {"device_bytes", row.device_bytes}};
  json["prediction_error"] = or_null(row.prediction_error);
  json["memory_error"] = or_null(row.memory_error);
  json["joules_per_token"] = or_null(row.joules_per_token);
  json["least_sm_clock_mhz"] = or_null(row.least_sm_clock_mhz);
  json["throttle_reasons"] = row.throttle_reasons;
  return json;
}

Json verdict_json(const PlannerVerdict& verdict) {
  Json json{{"points", verdict.points},
            {"median_error", or_null(verdict.median_error)},
            {"worst_error", or_null(verdict.worst_error)},
            {"rank_correlation", or_null(verdict.rank_correlation)},
            {"regret", or_null(verdict.regret())},
            {"regrets", Json::array()},
            {"failed_choices", Json::array()}};
  for (const Regret& r : verdict.regrets) {
    json["regrets"].push_back(
        {{"ranks", r.ranks}, {"chosen", r.chosen}, {"best", r.best}, {"was_asked", r.was_asked}, {"regret", r.regret}});
  }
  for (const FailedChoice& failed : verdict.failed_choices)
    json["failed_choices"].push_back({{"ranks", failed.ranks}, {"chosen", failed.chosen}});
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

Json summary_json(const StudyData& data) {
  const std::vector<Row> rows = rows_of(data);
  const PlannerVerdict verdict = planner_verdict(data, rows);
  Json json{
      {"folder", data.folder.string()}, {"commit", data.environment.plait.commit}, {"machine", data.environment.machine()}};
  json["stopped"] = data.stops.empty() ? Json() : Json(to_string(data.stops.back().reason));
  json["states"] = Json::object();
  for (const Name<PointState>& state : names<PointState>) {
    const auto count = std::ranges::count(rows, state.value, &Row::state);
    json["states"][std::string(state.text)] = count;
  }
  json["baseline"] = or_null(data.baseline);
  json["points"] = Json::array();
  for (const Row& row : rows) json["points"].push_back(row_json(data, row));
  json["planner"] = verdict_json(verdict);
  json["exceeded_bounds"] = exceeded_study_bounds(data, rows, verdict);
  json["simulated"] = Json::array();
  for (const SimulatedPoint& point : data.simulated) json["simulated"].push_back(record_json(point));
  return json;
}

}  // namespace plait::study
