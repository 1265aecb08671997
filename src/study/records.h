// Reads and writes the lines of points.jsonl, results.jsonl and simulated.jsonl. docs/studies.md lists their keys.
#pragma once

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "study/point.h"
#include "study/round.h"
#include "study/study_data.h"

namespace plait::study {

nlohmann::ordered_json to_json(const Point& point);
nlohmann::ordered_json to_json(const Round& round);  // "record": "round"
nlohmann::ordered_json to_json(const Stop& stop);    // "record": "stop"
nlohmann::ordered_json to_json(const SimulatedPoint& point);
nlohmann::ordered_json to_json(const Measurement& measurement);
nlohmann::ordered_json to_json(const PointFacts& facts);
nlohmann::ordered_json to_json(const Prediction& prediction);

// ConfigError as in JsonFields; `points`: their number.
Point point_from(const JsonFields& fields);
Round round_from(const JsonFields& fields, int points);
Stop stop_from(const JsonFields& fields);
SimulatedPoint simulated_point_from(const JsonFields& fields);
Measurement measurement_from(const JsonFields& fields);

}  // namespace plait::study
