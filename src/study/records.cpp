#include "study/records.h"

#include <limits>

#include "core/config_limits.h"
#include "core/error.h"
#include "parallel/ledger_json.h"
#include "parallel/plan_json.h"

namespace plait::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t any_count = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t most_ranks = limits::ranks.most;
constexpr std::size_t most_steps = 1'000'000;
constexpr std::size_t most_text = 1 << 20;
constexpr std::size_t most_coordinates = 64;

template <Named E>
E choice(const JsonFields& fields, const std::string& key) {
  const auto value = named<E>(fields.text(key));
  if (!value) fields.fail(key, "one of " + names_listed<E>());
  return *value;
}

Json coordinates_json(const Coordinates& coordinates) {
  Json json = Json::object();
  for (const auto& [key, value] : coordinates) json[key] = value;
  return json;
}

Coordinates coordinates_from(const JsonFields& fields) {
  Coordinates coordinates;
  fields.each_text("coordinates", most_coordinates,
                   [&](const std::string& key, const std::string& value) { coordinates.emplace_back(key, value); });
  return coordinates;
}

Json ledger_json(const parallel::Ledger& ledger) { return ledger; }

parallel::Ledger ledger_from(const JsonFields& fields) {
  try {
    return fields.json().get<parallel::Ledger>();
  } catch (const Json::exception& error) {
    const std::string why = error.what();
    const auto name = why.find("] ");  // the library's, of the error
    fields.fail("", "a ledger as plait writes it: " + why.substr(name == std::string::npos ? 0 : name + 2));
  }
}

void set(Json& json, const char* key, const std::optional<double>& value) {
  if (value) json[key] = *value;
}

Json device_json(const DeviceConditions& device) {
  Json json{{"device", device.device}, {"name", device.name}};
  set(json, "sm_clock_mhz", device.sm_clock_mhz);
  set(json, "least_sm_clock_mhz", device.least_sm_clock_mhz);
  set(json, "power_w", device.power_w);
  set(json, "temperature_c", device.temperature_c);
  set(json, "energy_j", device.energy_j);
  json["throttle_reasons"] = device.throttle_reasons;
  return json;
}

DeviceConditions device_from(const JsonFields& fields) {
  return {.device = fields.text("device"),
          .name = fields.text("name"),
          .sm_clock_mhz = fields.maybe_number("sm_clock_mhz"),
          .least_sm_clock_mhz = fields.maybe_number("least_sm_clock_mhz"),
          .power_w = fields.maybe_number("power_w"),
          .temperature_c = fields.maybe_number("temperature_c"),
          .energy_j = fields.maybe_number("energy_j"),
          .throttle_reasons = fields.texts("throttle_reasons", 64)};
}

PointFacts facts_from(const JsonFields& fields) {
  PointFacts facts;
  const auto count = [&](const char* key) { return fields.integer(key, 1, any_count); };
  facts.ranks = static_cast<int>(fields.integer("ranks", 1, most_ranks));
  const JsonFields layout = fields.object("layout");
  AxisSizes sizes;
  std::int64_t left = facts.ranks;
  for (const Name<plait::Axis>& axis : names<plait::Axis>) {
    sizes[axis.value] = layout.integer(std::string(axis.text).c_str(), 1, left);
    left /= sizes[axis.value];
  }
  facts.layout = parallel::make_layout(sizes);
  if (facts.layout.ranks() != facts.ranks)
    layout.fail(std::string(names<plait::Axis>.back().text).c_str(),
                "such that the axes make " + std::to_string(facts.ranks) + " ranks");
  facts.schedule = fields.text("schedule");
  facts.virtual_stages = count("virtual_stages");
  facts.zero = fields.integer("zero", 0, 3);
  facts.recompute = fields.text("recompute");
  facts.micro_batch = count("micro_batch");
  facts.micro_batches = count("micro_batches");
  // Bounded so that their product, the tokens of a step, does not overflow.
  facts.global_batch = fields.integer("global_batch", 1, std::int64_t{1} << 31);
  facts.sequence_length = fields.integer("sequence_length", 1, std::int64_t{1} << 31);
  facts.parameters = count("parameters");
  facts.matrix_parameters = count("matrix_parameters");
  facts.model_flops_per_token = fields.not_negative("model_flops_per_token");
  facts.hardware_flops_per_token = fields.not_negative("hardware_flops_per_token");
  return facts;
}

Prediction prediction_from(const JsonFields& fields) {
  return {.step_ms = fields.not_negative("step_ms"),
          .bubble_fraction = fields.not_negative("bubble_fraction"),
          .ledger = ledger_from(fields.object("ledger")),
          .peak_bytes = fields.numbers("peak_bytes", most_ranks),
          .limit_bytes = fields.not_negative("limit_bytes"),
          .from = fields.text("from")};
}

template <typename T>
void set_object(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = to_json(*value);
}

}  // namespace

Json to_json(const PointFacts& facts) {
  return {{"ranks", facts.ranks},
          {"layout", parallel::to_json(facts.layout)},
          {"schedule", facts.schedule},
          {"virtual_stages", facts.virtual_stages},
          {"zero", facts.zero},
          {"recompute", facts.recompute},
          {"micro_batch", facts.micro_batch},
          {"micro_batches", facts.micro_batches},
          {"global_batch", facts.global_batch},
          {"sequence_length", facts.sequence_length},
          {"parameters", facts.parameters},
          {"matrix_parameters", facts.matrix_parameters},
          {"model_flops_per_token", facts.model_flops_per_token},
          {"hardware_flops_per_token", facts.hardware_flops_per_token}};
}

Json to_json(const Prediction& prediction) {
  return {{"step_ms", prediction.step_ms},
          {"bubble_fraction", prediction.bubble_fraction},
          {"ledger", ledger_json(prediction.ledger)},
          {"peak_bytes", prediction.peak_bytes},
          {"limit_bytes", prediction.limit_bytes},
          {"from", prediction.from}};
}

Json to_json(const Point& point) {
  Json json{{"point", point.index}, {"id", point.id}, {"coordinates", coordinates_json(point.coordinates)}};
  json["pruned"] = point.pruning ? Json(to_string(*point.pruning)) : Json();
  if (point.pruning) json["because"] = point.pruned_because;
  if (point.same_as) json["same_as"] = *point.same_as;
  if (point.asked_ranks > 0) json["asked_ranks"] = point.asked_ranks;
  set_object(json, "facts", point.facts);
  set_object(json, "predicted", point.prediction);
  json["config"] = point.config;
  return json;
}

Point point_from(const JsonFields& fields) {
  Point point;
  point.index = static_cast<int>(fields.integer("point", 0, std::numeric_limits<int>::max()));
  point.id = fields.text("id", 32);
  point.coordinates = coordinates_from(fields);
  if (fields.has("pruned")) {
    point.pruning = choice<Pruning>(fields, "pruned");
    point.pruned_because = fields.text("because", most_text);
  }
  if (point.pruning == Pruning::duplicate) {
    if (point.index == 0) fields.fail("pruned", "something else: the first point is like none before it");
    point.same_as = static_cast<int>(fields.integer("same_as", 0, point.index - 1));
  }
  point.asked_ranks = static_cast<int>(fields.maybe_integer("asked_ranks", 1, std::numeric_limits<int>::max()).value_or(0));
  if (fields.has("facts")) point.facts = facts_from(fields.object("facts"));
  if (fields.has("predicted")) point.prediction = prediction_from(fields.object("predicted"));
  point.config = fields.text("config", most_text);
  const bool runs = !point.pruning;
  if (runs && (point.id.empty() || point.config.empty() || !point.facts))
    fields.fail("pruned", "given where there is no id, configuration or facts");
  return point;
}

Json to_json(const Measurement& m) {
  Json json{{"step_ms", m.step_ms}, {"tokens_per_step", m.tokens_per_step}};
  json["ledgers"] = m.ledgers;
  json["memory"] = Json::array();
  for (const RankMemory& rank : m.memory) {
    json["memory"].push_back({{"planned_bytes", rank.planned_bytes},
                              {"allocated_bytes", rank.allocated_bytes},
                              {"device_bytes", rank.device_bytes}});
  }
  json["devices"] = Json::array();
  for (const DeviceConditions& device : m.devices) json["devices"].push_back(device_json(device));
  set(json, "peak_flops", m.peak_flops);
  set(json, "load", m.load);
  set(json, "loss", m.loss);
  set(json, "validation_loss", m.validation_loss);
  if (m.tokens) json["tokens"] = *m.tokens;
  return json;
}

Measurement measurement_from(const JsonFields& fields) {
  Measurement m;
  m.step_ms = fields.numbers("step_ms", most_steps);
  for (const double step : m.step_ms) {
    if (!(step > 0)) fields.fail("step_ms", "times above 0");
  }
  if (m.step_ms.empty()) fields.fail("step_ms", "a list of one time at least");
  m.tokens_per_step = fields.integer("tokens_per_step", 1, any_count);
  fields.each("ledgers", most_ranks, [&](const JsonFields& ledger) { m.ledgers.push_back(ledger_from(ledger)); });
  fields.each("memory", most_ranks, [&](const JsonFields& rank) {
    m.memory.push_back({.planned_bytes = rank.not_negative("planned_bytes"),
                        .allocated_bytes = rank.not_negative("allocated_bytes"),
                        .device_bytes = rank.not_negative("device_bytes")});
  });
  fields.each("devices", most_ranks, [&](const JsonFields& device) { m.devices.push_back(device_from(device)); });
  m.peak_flops = fields.maybe_number("peak_flops");
  m.load = fields.maybe_number("load");
  m.loss = fields.maybe_number("loss");
  m.validation_loss = fields.maybe_number("validation_loss");
  m.tokens = fields.maybe_integer("tokens", 0, any_count);
  return m;
}

Json to_json(const Round& round) {
  Json json{
      {"record", "round"},        {"point", round.point},     {"round", round.round}, {"outcome", to_string(round.outcome)},
      {"started", round.started}, {"seconds", round.seconds}, {"host", round.host},   {"log", round.log}};
  if (round.outcome != Outcome::ok) json["message"] = round.message;
  if (round.measured) json["measured"] = to_json(*round.measured);
  return json;
}

Round round_from(const JsonFields& fields, int points) {
  Round round;
  round.point = static_cast<int>(fields.integer("point", 0, points - 1));
  round.round = static_cast<int>(fields.integer("round", 1, 1'000'000));
  round.outcome = choice<Outcome>(fields, "outcome");
  round.started = fields.text("started");
  round.seconds = fields.not_negative("seconds");
  round.host = fields.text("host");
  round.log = fields.text("log");
  if (round.outcome == Outcome::ok) {
    round.measured = measurement_from(fields.object("measured"));
  } else {
    round.message = fields.text("message", most_text);
  }
  return round;
}

Json to_json(const Stop& stop) { return {{"record", "stop"}, {"reason", to_string(stop.reason)}, {"time", stop.time}}; }

Stop stop_from(const JsonFields& fields) {
  return {.reason = choice<StopReason>(fields, "reason"), .time = fields.text("time")};
}

Json to_json(const SimulatedPoint& point) {
  Json json{{"coordinates", coordinates_json(point.coordinates)},
            {"gpus", point.gpus},
            {"device", point.device},
            {"network", point.network},
            {"refused", point.refused}};
  set_object(json, "facts", point.facts);
  set_object(json, "predicted", point.prediction);
  set(json, "least_ratio", point.least_ratio);
  set(json, "most_ratio", point.most_ratio);
  return json;
}

SimulatedPoint simulated_point_from(const JsonFields& fields) {
  SimulatedPoint point;
  point.coordinates = coordinates_from(fields);
  point.gpus = static_cast<int>(fields.integer("gpus", 1, most_ranks));
  point.device = fields.text("device");
  point.network = fields.text("network");
  point.refused = fields.text("refused", most_text);
  if (fields.has("facts")) point.facts = facts_from(fields.object("facts"));
  if (fields.has("predicted")) point.prediction = prediction_from(fields.object("predicted"));
  point.least_ratio = fields.maybe_number("least_ratio");
  point.most_ratio = fields.maybe_number("most_ratio");
  return point;
}

}  // namespace plait::study
