#include "train/report/accuracy.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/record.h"
#include "core/statistics.h"
#include "core/terminal.h"
#include "core/text_table.h"
#include "plan/report.h"

namespace plait::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t most_record_bytes = std::uint64_t{64} << 20;

std::vector<double> sizes_of(const std::vector<Accuracy>& runs, double (Accuracy::*error)() const) {
  std::vector<double> sizes;
  for (const Accuracy& a : runs) sizes.push_back(std::abs((a.*error)()));
  return sizes;
}

const Accuracy& fastest(const std::vector<Accuracy>& runs, RunFigures Accuracy::* figures) {
  return *std::min_element(runs.begin(), runs.end(),
                           [&](const Accuracy& a, const Accuracy& b) { return (a.*figures).step_ms < (b.*figures).step_ms; });
}

// The slowdown of the run predicted to be fastest relative to the measured fastest.
double regret(const std::vector<Accuracy>& runs) {
  return fastest(runs, &Accuracy::predicted).measured.step_ms / fastest(runs, &Accuracy::measured).measured.step_ms - 1;
}

}  // namespace

double Accuracy::step_error() const { return measured.step_ms > 0 ? predicted.step_ms / measured.step_ms - 1 : 0; }

double Accuracy::worst_memory_error() const {
  double worst = 0;
  for (std::size_t r = 0; r < std::min(predicted.peak_bytes.size(), measured.peak_bytes.size()); ++r) {
    if (measured.peak_bytes[r] <= 0) continue;
    const double error = predicted.peak_bytes[r] / measured.peak_bytes[r] - 1;
    if (std::abs(error) > std::abs(worst)) worst = error;
  }
  return worst;
}

void declare(auto& field, Of<RunFigures> auto& figures) {
  field("step_ms", figures.step_ms);
  field("exposed_comm_ms", figures.exposed_comm_ms);
  field("peak_bytes", figures.peak_bytes, record::at_most(static_cast<std::size_t>(limits::ranks.most)));
}

void declare(auto& field, Of<Accuracy> auto& a) {
  field.with_default("", "layout", a.layout);
  field.with_default("", "machine", a.machine);
  field("predicted", a.predicted);
  field("measured", a.measured);
}

std::optional<Accuracy> predicted_run(const nlohmann::ordered_json& plan) {
  const Json& predicted = plan.at("predicted");
  if (predicted.is_null()) return std::nullopt;
  const JsonSource source{.name = "plan"};
  return Accuracy{.run = {},
                  .layout = plan::chosen_candidate(plan, "plan").to_string(),
                  .machine = predicted.at("machine").get<std::string>(),
                  .predicted = record_from<RunFigures>(JsonField(predicted, source)),
                  .measured = {}};
}

nlohmann::ordered_json to_json(const Accuracy& a) { return record_json(a); }

Accuracy read_accuracy(const fs::path& run_dir) {
  const JsonSource source{.name = (run_dir / "prediction.json").string()};
  const Json json = read_json_file(source.name, most_record_bytes, "; runs write it when they end");
  auto accuracy = record_from<Accuracy>(JsonField(json, source));
  accuracy.run = run_dir.string();
  return accuracy;
}

std::string accuracy_line(const Accuracy& a) {
  std::string text = fmt::format(
      "predicted {:.1f} ms a step, measured {:.1f} ({:+.1f} %), exposed communication {:.1f} and {:.1f} ms",
      a.predicted.step_ms, a.measured.step_ms, 100 * a.step_error(), a.predicted.exposed_comm_ms, a.measured.exposed_comm_ms);
  if (!a.measured.peak_bytes.empty() && !a.predicted.peak_bytes.empty()) {
    const double predicted = *std::max_element(a.predicted.peak_bytes.begin(), a.predicted.peak_bytes.end());
    const double measured = *std::max_element(a.measured.peak_bytes.begin(), a.measured.peak_bytes.end());
    if (measured > 0)
      text += fmt::format(", memory {} and {} ({:+.1f} %)", format_bytes(predicted, 2), format_bytes(measured, 2),
                          100 * a.worst_memory_error());
  }
  return text + "; predicted from " + a.machine;
}

std::string accuracy_table(const std::vector<Accuracy>& runs, int width) {
  require(!runs.empty(), "accuracy_table: at least one run");
  TextTable table({{"predicted ms"}, {"measured ms"}, {"error %"}, {"memory %"}, {"run", Align::left}});
  for (const Accuracy& a : runs) {
    table.add({fmt::format("{:.2f}", a.predicted.step_ms), fmt::format("{:.2f}", a.measured.step_ms),
               fmt::format("{:+.1f}", 100 * a.step_error()), fmt::format("{:+.1f}", 100 * a.worst_memory_error()),
               a.run + "  " + a.layout});
  }
  std::string text = table.text(width);
  const std::vector<double> steps = sizes_of(runs, &Accuracy::step_error),
                            memory = sizes_of(runs, &Accuracy::worst_memory_error);
  text +=
      folded(fmt::format("{}: step time off by {:.1f} % (median), {:.1f} % (largest); memory by {:.1f} % at most",
                         plural(runs.size(), "run"), 100 * median(steps), 100 * *std::max_element(steps.begin(), steps.end()),
                         100 * *std::max_element(memory.begin(), memory.end())),
             width, 4);
  if (runs.size() == 1) return text + "\n";
  return text + fmt::format("\nthe run predicted to be fastest is {:.1f} % slower than the one that was fastest\n",
                            100 * regret(runs));
}

nlohmann::ordered_json accuracy_json(const std::vector<Accuracy>& runs) {
  require(!runs.empty(), "accuracy_json: at least one run");
  Json json{{"runs", Json::array()}};
  for (const Accuracy& a : runs) {
    Json entry = to_json(a);
    entry["run"] = a.run;
    entry["step_error"] = a.step_error();
    entry["memory_error"] = a.worst_memory_error();
    json["runs"].push_back(std::move(entry));
  }
  const std::vector<double> steps = sizes_of(runs, &Accuracy::step_error),
                            memory = sizes_of(runs, &Accuracy::worst_memory_error);
  json["median_step_error"] = median(steps);
  json["largest_step_error"] = *std::max_element(steps.begin(), steps.end());
  json["largest_memory_error"] = *std::max_element(memory.begin(), memory.end());
  json["predicted_best_slower_by"] = regret(runs);
  return json;
}

}  // namespace plait::train
