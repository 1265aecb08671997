// Writes a study's rows as one JSON document.
#include "core/error.h"
#include "study/records.h"
#include "study/rows.h"

namespace plait::study {
namespace {

using Json = nlohmann::ordered_json;

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
