#include "study/report/writers.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "study/report/findings.h"

namespace plait::study {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

// Lines name their columns, which appear in the order in which they were first named. Columns that a line does not name are
// empty.
class CsvTable {
 public:
  // The columns `first` come first, even without lines.
  explicit CsvTable(std::vector<std::string> first = {}) : columns_(std::move(first)) {}

  void begin() { lines_.emplace_back(); }
  void set(const std::string& column, const std::string& text) {
    const auto at = static_cast<std::size_t>(std::ranges::find(columns_, column) - columns_.begin());
    if (at == columns_.size()) columns_.push_back(column);
    if (lines_.back().size() <= at) lines_.back().resize(at + 1);
    lines_.back()[at] = quoted(text);
  }
  // The shortest text that reads back to the same bits.
  void set(const std::string& column, double value) {
    set(column, std::isfinite(value) ? fmt::format("{}", value) : std::string());
  }
  void set(const std::string& column, const std::optional<double>& value) {
    value ? set(column, *value) : set(column, std::string());
  }
  void set_count(const std::string& column, std::int64_t value) { set(column, std::to_string(value)); }
  void set(const std::string& column, const Estimate& e) {
    set(column, e.value);
    set(column + "_low", e.interval.low);
    set(column + "_high", e.interval.high);
  }
  std::string text() const {
    std::string text;
    const auto add = [&](const std::vector<std::string>& fields) {
      for (std::size_t n = 0; n < columns_.size(); ++n)
        text += (n == 0 ? "" : ",") + (n < fields.size() ? fields[n] : std::string());
      text += "\r\n";
    };
    std::vector<std::string> heading;
    for (const std::string& column : columns_) heading.push_back(quoted(column));
    add(heading);
    for (const std::vector<std::string>& line : lines_) add(line);
    return text;
  }

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> lines_;
};

void set_coordinates(CsvTable& table, const Coordinates& coordinates) {
  for (const auto& [key, value] : coordinates) table.set(key, value);
}

void set_facts(CsvTable& table, const std::optional<PointFacts>& facts) {
  if (!facts) return;
  table.set_count("ranks", facts->ranks);
  for (const AxisRow& row : axis_table) table.set_count(std::string(row.name), facts->layout.size(row.axis));
  table.set("schedule", facts->schedule);
  table.set_count("virtual_stages", facts->virtual_stages);
  table.set_count("zero", facts->zero);
  table.set("recompute", facts->recompute);
  table.set_count("micro_batch", facts->micro_batch);
  table.set_count("micro_batches", facts->micro_batches);
  table.set_count("global_batch", facts->global_batch);
  table.set_count("sequence_length", facts->sequence_length);
  table.set_count("model_parameters", facts->parameters);
  table.set_count("matrix_parameters", facts->matrix_parameters);
}

void set_prediction(CsvTable& table, const std::optional<Prediction>& prediction) {
  if (!prediction) return;
  table.set("predicted_step_ms", prediction->step_ms);
  table.set("predicted_bubble_fraction", prediction->bubble_fraction);
  if (!prediction->peak_bytes.empty()) table.set("predicted_peak_bytes", *std::ranges::max_element(prediction->peak_bytes));
  table.set("limit_bytes", prediction->limit_bytes);
}

void set_ledger(CsvTable& table, const parallel::Ledger& ledger) {
  for (const Account& account : accounts_of(ledger)) {
    std::string name = account.name;
    std::ranges::replace(name, ' ', '_');
    table.set(name + "_ms", account.ms);
  }
}

}  // namespace

std::string points_csv(const StudyData& data) {
  CsvTable table;
  for (const Row& row : rows_of(data)) {
    const Point& point = data.points[static_cast<std::size_t>(row.point)];
    table.begin();
    table.set_count("point", row.point);
    table.set("id", point.id);
    table.set("label", point.label());
    set_coordinates(table, point.coordinates);
    table.set("state", to_string(row.state));
    table.set("pruned", point.pruning ? to_string(*point.pruning) : "");
    const Round* failure = data.failure_of(row.point);
    table.set("reason", point.pruning ? point.pruned_because : failure != nullptr ? failure->message : "");
    table.set("same_as", point.same_as ? std::to_string(*point.same_as) : "");
    set_facts(table, point.facts);
    set_prediction(table, point.prediction);
    table.set_count("rounds", row.rounds);
    if (row.rounds == 0) continue;
    table.set("step_ms", row.step_ms);
    table.set("tokens_per_second_per_device", row.tokens_per_second_per_device);
    table.set("model_flops_per_second_per_device", row.model_flops_per_second_per_device);
    if (row.efficiency) table.set("efficiency", *row.efficiency);
    table.set("mfu", row.mfu);
    table.set("hfu", row.hfu);
    set_ledger(table, row.ledger);
    table.set("bubble_fraction", row.bubble_fraction);
    table.set("planned_bytes", row.planned_bytes);
    table.set("allocated_bytes", row.allocated_bytes);
    table.set("device_bytes", row.device_bytes);
    table.set("prediction_error", row.prediction_error);
    table.set("memory_error", row.memory_error);
    table.set("joules_per_token", row.joules_per_token);
    table.set("least_sm_clock_mhz", row.least_sm_clock_mhz);
    const Measurement& last = data.measured_rounds_of(row.point).back()->measured.value();
    table.set("validation_loss", last.validation_loss);
    if (last.tokens) table.set_count("tokens", *last.tokens);
  }
  return table.text();
}

std::string rounds_csv(const StudyData& data) {
  CsvTable table({"point", "round", "label", "outcome", "started", "seconds", "host", "message", "log"});
  for (const Round& round : data.rounds) {
    table.begin();
    table.set_count("point", round.point);
    table.set_count("round", round.round);
    table.set("label", data.points[static_cast<std::size_t>(round.point)].label());
    table.set("outcome", to_string(round.outcome));
    table.set("started", round.started);
    table.set("seconds", round.seconds);
    table.set("host", round.host);
    table.set("message", round.message);
    table.set("log", round.log);
    if (!round.measured) continue;
    const Measurement& m = *round.measured;
    table.set_count("steps", static_cast<std::int64_t>(m.step_ms.size()));
    table.set("median_step_ms", median(m.step_ms));
    table.set("least_step_ms", *std::ranges::min_element(m.step_ms));
    table.set("most_step_ms", *std::ranges::max_element(m.step_ms));
    table.set_count("tokens_per_step", m.tokens_per_step);
    parallel::LedgerSum sum;
    for (const parallel::Ledger& ledger : m.ledgers) sum.add(ledger);
    if (sum.steps() > 0) set_ledger(table, sum.mean());
    table.set("load", m.load);
    table.set("loss", m.loss);
    table.set("validation_loss", m.validation_loss);
    if (m.tokens) table.set_count("tokens", *m.tokens);
  }
  return table.text();
}

std::string simulated_csv(const StudyData& data) {
  CsvTable table;
  for (const SimulatedPoint& point : data.simulated) {
    table.begin();
    table.set_count("gpus", point.gpus);
    table.set("device", point.device);
    table.set("network", point.network);
    set_coordinates(table, point.coordinates);
    table.set("refused", point.refused);
    set_facts(table, point.facts);
    set_prediction(table, point.prediction);
    table.set("least_ratio", point.least_ratio);
    table.set("most_ratio", point.most_ratio);
  }
  return table.text();
}

}  // namespace plait::study
