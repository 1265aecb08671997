#include "study/display.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "config/schema.h"
#include "core/error.h"
#include "core/format.h"
#include "core/text_table.h"
#include "study/report/losses.h"

namespace plait::study {
namespace {

// Time to start, bind and tune a process tree: the part of a round besides its steps.
constexpr double start_seconds_host = 1, start_seconds_gpu = 12;

std::string percent(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:.1f} %", 100 * *fraction) : std::string("-");
}

std::string duration(double seconds) {
  return format_duration(std::chrono::seconds(static_cast<std::int64_t>(std::ceil(seconds))));
}

double most_bytes(const Prediction& prediction) {
  const auto most = std::ranges::max_element(prediction.peak_bytes);
  return most == prediction.peak_bytes.end() ? 0 : *most;
}

std::string half_width(const Estimate& estimate) {
  return fmt::format("{:.1f} %", 50 * (estimate.interval.high - estimate.interval.low) / estimate.value);
}

}  // namespace

std::string round_line(const StudyData& data, const Round& round) {
  const Point& point = data.points[static_cast<std::size_t>(round.point)];
  const auto measured = [&] {
    std::string text = fmt::format("{:.2f} ms a step", median(round.measured->step_ms));
    if (const auto loss = round.measured->validation_loss) text += fmt::format(", validation loss {:.4f}", *loss);
    return text;
  };
  const std::string what = round.measured ? measured() : round.message + " (" + round.log + ")";
  return fmt::format("{:<13} round {:>2}  {}: {}", to_string(round.outcome), round.round, point.label(), what);
}

std::string advance_line(const StudyData& data, const Advance& advance) {
  std::string text =
      fmt::format("{} of about {} rounds, {} left", advance.done, advance.done + advance.left, duration(advance.seconds_left));
  if (advance.best) text += "; best so far " + data.points[static_cast<std::size_t>(*advance.best)].label();
  return text;
}

std::string dry_run_table(const Config& study, const std::vector<Point>& points, int width) {
  TextTable table({{"point"}, {"", Align::left}, {"step"}, {"memory"}, {"what", Align::left}});
  const config::RoundRange rounds = config::round_range(study.study.measure.rounds).value();
  const double measured_steps = static_cast<double>(study.study.measure.steps + study.study.measure.warmup);
  const auto steps_of = [&](const Point& point) {
    if (study.study.scaling != Scaling::isoflop) return measured_steps;
    return static_cast<double>(parse_config(point.config, {}, "points.jsonl").train.steps);
  };
  double seconds = 0;
  int measured = 0;
  for (const Point& point : points) {
    const std::string state = point.pruning ? to_string(*point.pruning) : std::string("measured");
    const bool known = point.prediction.has_value();
    table.add({std::to_string(point.index), state, known ? fmt::format("{:.2f} ms", point.prediction->step_ms) : "-",
               known ? format_bytes(most_bytes(*point.prediction)) : "-",
               point.label() + (point.pruning ? ": " + point.pruned_because : "")});
    if (point.pruning) continue;
    ++measured;
    const bool on_gpus = known && point.prediction->from.find("CPU") == std::string::npos;
    seconds +=
        (on_gpus ? start_seconds_gpu : start_seconds_host) + (known ? steps_of(point) * point.prediction->step_ms / 1e3 : 0);
  }
  std::string text = fmt::format("{}: {} measured, {} pruned; about {} at {} of each", plural(points.size(), "point"), measured,
                                 points.size() - static_cast<std::size_t>(measured), duration(seconds * rounds.least),
                                 plural(rounds.least, "round"));
  if (rounds.most != rounds.least) text += fmt::format(", {} at {}", duration(seconds * rounds.most), rounds.most);
  return table.text(width) + text + "\n";
}

std::string result_table(const StudyData& data, int width) {
  if (data.config.study.scaling == Scaling::isoflop) return loss_table(data, width);
  const std::vector<Row> rows = rows_of(data);
  TextTable table({{"point"},
                   {"state", Align::left},
                   {"n"},
                   {"step, ms"},
                   {"+-"},
                   {"tok/s/dev"},
                   {"MFU"},
                   {"effic."},
                   {"predicted"},
                   {"what", Align::left}});
  for (const Row& row : rows) {
    const Point& point = data.points[static_cast<std::size_t>(row.point)];
    std::string why = point.pruned_because;
    if (const Round* failure = data.failure_of(row.point)) why = failure->message;
    if (!why.empty()) why = ": " + why;
    if (row.rounds == 0) {
      table.add({std::to_string(row.point), to_string(row.state), "", "", "", "", "", "", "", point.label() + why});
      continue;
    }
    if (row.state != PointState::ok) why = fmt::format(" ({}){}", to_string(row.state), why);
    table.add({std::to_string(row.point), row.state == PointState::ok ? "ok" : "part", std::to_string(row.rounds),
               fmt::format("{:.2f}", row.step_ms.value), row.rounds > 1 ? half_width(row.step_ms) : "-",
               format_count(row.tokens_per_second_per_device.value), percent(row.mfu),
               percent(row.efficiency ? std::optional(row.efficiency->value) : std::nullopt),
               row.prediction_error ? fmt::format("{:+.1f} %", 100 * *row.prediction_error) : "-", point.label() + why});
  }
  std::string text = table.text(width);
  const PlannerVerdict verdict = planner_verdict(data, rows);
  if (verdict.points > 0) {
    text += fmt::format("planner: {} points, step off by {} in the median and {} at worst", verdict.points,
                        percent(verdict.median_error), percent(verdict.worst_error));
    if (verdict.rank_correlation) text += fmt::format(", rank correlation {:.2f}", *verdict.rank_correlation);
    text += ", regret " + percent(verdict.regret()) + "\n";
  }
  for (const FailedChoice& failed : verdict.failed_choices) text += "no regret: " + failed_choice_text(data, failed) + "\n";
  for (const std::string& exceeded : exceeded_study_bounds(data, rows, verdict)) text += "EXCEEDED " + exceeded + "\n";
  return text;
}

std::string simulated_table(const std::vector<SimulatedPoint>& points, int width) {
  TextTable table({{"GPUs"}, {"step"}, {"tok/s/device"}, {"bubble"}, {"memory"}, {"simulated", Align::left}});
  for (const SimulatedPoint& point : points) {
    Point named;
    named.coordinates = point.coordinates;
    if (!point.prediction) {
      table.add({std::to_string(point.gpus), "-", "-", "-", "-", named.label() + ": " + point.refused});
      continue;
    }
    const double tokens = static_cast<double>(point.facts->tokens_per_step()) / point.gpus;
    table.add({std::to_string(point.gpus), fmt::format("{:.2f} ms", point.prediction->step_ms),
               format_count(1e3 * tokens / point.prediction->step_ms), percent(point.prediction->bubble_fraction),
               format_bytes(most_bytes(*point.prediction)), named.label()});
  }
  return table.text(width);
}

}  // namespace plait::study
