// Sections that compare the points of a study: time, memory, predictions.
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/format.h"
#include "core/parse_number.h"
#include "core/units.h"
#include "study/report/sections.h"

namespace plait::study {
namespace {

std::string number_of(const Row& row) { return std::to_string(row.point); }

// "12: ranks=2 layout=auto": the name of a bar.
std::string bar_name(const Findings& f, const Row& row) { return fmt::format("{}: {}", row.point, f.point(row).label()); }

std::string of_how_many(std::size_t drawn, std::size_t all) {
  return drawn < all ? fmt::format(" The {} fastest of {} are drawn; the table has all.", drawn, all) : "";
}

double largest(const std::vector<double>& values) {
  const auto most = std::ranges::max_element(values);
  return most == values.end() ? 0 : *most;
}

std::string bytes_or_dash(double bytes) { return bytes > 0 ? format_bytes(bytes) : "—"; }

}  // namespace

Section ledger_section(const Findings& f) {
  Section section{
      "ledger", "Where the time goes",
      "The ledger of a step, mean over ranks and rounds, fastest point first (per device). Communication is what of "
      "it was exposed: what compute hid costs nothing and is not here."};
  section.table.columns = {{"point", true}, {"", false}, {"step, ms", true}};
  for (const Account& account : accounts_of({})) section.table.columns.push_back({account.name + ", ms", true});
  Chart chart{.description = "Accounts of each point's step, stacked.", .x = {"ms per step", false}, .is_stacked = true};
  for (const Account& account : accounts_of({})) chart.series.push_back({account.name, Look::bars});
  const std::vector<const Row*> rows = f.by_speed();
  for (const Row* row : rows) {
    const std::vector<Account> accounts = accounts_of(row->ledger);
    std::vector<Cell> cells{{number_of(*row)}, {f.point(*row).label()}, {figure(row->ledger.step_ms)}};
    const bool drawn = chart.categories.size() < most_bars;
    for (std::size_t n = 0; n < accounts.size(); ++n) {
      cells.push_back({figure(accounts[n].ms)});
      const double place = static_cast<double>(chart.categories.size());
      if (drawn) chart.series[n].values.push_back({place, accounts[n].ms, std::nullopt, accounts[n].name});
    }
    if (drawn) chart.categories.push_back(bar_name(f, *row));
    section.table.rows.push_back(std::move(cells));
  }
  section.text += of_how_many(chart.categories.size(), rows.size());
  if (!rows.empty()) section.chart = std::move(chart);
  return section;
}

Section map_section(const Findings& f) {
  const auto has_axis = [&](const char* key) {
    return std::ranges::any_of(f.data.points, [&](const Point& point) {
      return std::ranges::any_of(point.coordinates, [&](const auto& coordinate) { return coordinate.first == key; });
    });
  };
  const std::string across = has_axis("train.micro_batch") || !has_axis("launch.ranks") ? "train.micro_batch" : "launch.ranks";
  const bool by_batch = across == "train.micro_batch";
  std::vector<std::string> columns;
  std::vector<Coordinates> lines;
  // The place of a point: its value of `across`, and the other coordinates.
  const auto place = [&](const Point& point) {
    Coordinates rest = point.coordinates;
    std::string value = point.facts ? std::to_string(by_batch ? point.facts->micro_batch : point.facts->ranks) : "—";
    for (const auto& [key, text] : point.coordinates) {
      if (key == across) value = text;
    }
    std::erase_if(rest, [&](const auto& coordinate) { return coordinate.first == across; });
    return std::pair(rest, value);
  };
  for (const Point& point : f.data.points) {
    const auto [line, column] = place(point);
    if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
  Section section{
      "map", by_batch ? "Layout by micro-batch" : "Layout by ranks",
      fmt::format("{} per device; the fuller the colour, the faster. Hatched: does not fit. A value in an interrupted point "
                  "is of the rounds that it has.",
                  f.speed_unit())};
  section.table.columns.push_back({fmt::format("everything but {}", across), false});
  for (const std::string& column : columns)
    section.table.columns.push_back({(by_batch ? "micro-batch " : "ranks ") + column, true});
  const std::vector<const Row*> ordered = f.by_speed();
  const double most = ordered.empty() ? 0 : f.speed_per_device(*ordered.front()).value;
  const double least = ordered.empty() ? 0 : f.speed_per_device(*ordered.back()).value;
  for (const Coordinates& line : lines) {
    std::vector<Cell> cells(columns.size() + 1);
    cells[0].text = line.empty() ? "the configuration" : label_of(line);
    section.table.rows.push_back(std::move(cells));
  }
  for (const Row& row : f.rows) {
    // A duplicate shows its original's results.
    const Row& shown = f.rows[static_cast<std::size_t>(f.point(row).same_as.value_or(row.point))];
    const auto [line, column] = place(f.point(row));
    const auto line_at = static_cast<std::size_t>(std::ranges::find(lines, line) - lines.begin());
    const auto column_at = static_cast<std::size_t>(std::ranges::find(columns, column) - columns.begin());
    Cell& cell = section.table.rows[line_at][column_at + 1];
    if (f.counts(shown)) {
      const double speed = f.speed_per_device(shown).value;
      cell = {figure(speed), &shown == ordered.front() ? Mark::best : Mark::measured,
              most > least ? (speed - least) / (most - least) : 1};
      continue;
    }
    const std::optional<Pruning> pruning = f.point(shown).pruning;
    if (pruning == Pruning::memory || shown.state == PointState::out_of_memory) {
      cell = {"does not fit", Mark::does_not_fit, 0};
    } else if (pruning) {
      cell = {to_string(*pruning), Mark::not_measured, 0};
    } else {
      const bool failed = f.data.failure_of(shown.point) != nullptr;
      cell = {to_string(shown.state), failed ? Mark::failed : Mark::not_measured, 0};
    }
  }
  return section;
}

Section prediction_section(const Findings& f) {
  const auto bound = percentage(f.data.config.study.bounds.prediction_error);
  const double allowed = bound.value_or(0.05);
  Section section{"prediction", "Predicted and measured", ""};
  section.table.columns = {{"point", true},
                           {"", false},
                           {"predicted step, ms", true},
                           {"measured step, ms", true},
                           {"error of step", true},
                           {"error of memory", true},
                           {"predicted from", false}};
  const PlannerVerdict& planner = f.planner;
  if (planner.points == 0) {
    section.text = "No point was both predicted and measured.";
  } else {
    section.text =
        fmt::format("Of {} points the error of the predicted step is {} in the median and {} at worst", planner.points,
                    percent(planner.median_error.value_or(0)), percent(planner.worst_error.value_or(0)));
    if (planner.rank_correlation) section.text += fmt::format("; rank correlation {:.3f}", *planner.rank_correlation);
    if (const auto regret = planner.regret()) section.text += fmt::format("; regret {}", percent(*regret));
    section.text += fmt::format(". The dashed lines are ±{}.", percent(allowed));
    for (const Regret& regret : planner.regrets) {
      const auto label = [&](int point) { return f.data.points[static_cast<std::size_t>(point)].label(); };
      const std::string best = regret.chosen == regret.best
                                   ? "which is the fastest"
                                   : fmt::format("{} is faster by {}", label(regret.best), percent(regret.regret));
      section.text +=
          fmt::format(" {} {}: {} {}, {}.", regret.ranks, regret.ranks == 1 ? "rank" : "ranks",
                      regret.was_asked ? "the planner chose" : "predicted to be the fastest:", label(regret.chosen), best);
    }
  }
  for (const FailedChoice& failed : planner.failed_choices)
    section.text += fmt::format(" There is no regret where {}.", failed_choice_text(f.data, failed));
  Chart chart{.description = "Predicted step time against the measured one.",
              .x = {"measured step, ms", true},
              .y = {"predicted step, ms", true},
              .series = {{"points", Look::dots}, {"predicted = measured", Look::ideal}}};
  double least = 0, most = 0;
  for (const Row* row : f.measured()) {
    const std::optional<Prediction>& prediction = f.point(*row).prediction;
    const auto maybe = [](const std::optional<double>& share) { return share ? fmt::format("{:+.1f} %", 100 * *share) : "—"; };
    section.table.rows.push_back({{number_of(*row)},
                                  {f.point(*row).label()},
                                  {prediction ? figure(prediction->step_ms) : "—"},
                                  {figure(row->step_ms.value)},
                                  {maybe(row->prediction_error)},
                                  {maybe(row->memory_error)},
                                  {prediction ? prediction->from : "no prediction"}});
    if (!prediction || !(prediction->step_ms > 0)) continue;
    chart.series[0].values.push_back({row->step_ms.value, prediction->step_ms, std::nullopt, f.point(*row).label()});
    const auto [low, high] = std::minmax(row->step_ms.value, prediction->step_ms);
    least = least > 0 ? std::min(least, low) : low, most = std::max(most, high);
  }
  if (chart.series[0].values.empty()) return section;
  // The lines extend a little further than the points.
  least *= 0.9, most *= 1.1;
  for (const double end : {least, most}) chart.series[1].values.push_back({end, end, std::nullopt, "predicted = measured"});
  for (const double factor : {1 + allowed, 1 - allowed}) {
    Series line{fmt::format("{:+.0f} %", 100 * (factor - 1)), Look::limit};
    for (const double end : {least, most}) line.values.push_back({end, factor * end, std::nullopt, line.name});
    chart.series.push_back(std::move(line));
  }
  section.chart = std::move(chart);
  return section;
}

Section memory_section(const Findings& f) {
  Section section{"memory", "Memory",
                  "Of the fullest rank, in GiB. Points that do not fit are here with what they were planned to need."};
  section.table.columns = {{"point", true},         {"", false},     {"state", false},  {"planned", true}, {"allocated", true},
                           {"on the device", true}, {"limit", true}, {"of limit", true}};
  Chart chart{
      .description = "Memory of the fullest rank of each point, beside its limit.",
      .x = {"GiB", false},
      .series = {{"planned", Look::bars}, {"allocated", Look::bars}, {"on the device", Look::bars}, {"limit", Look::limit}}};
  std::vector<const Row*> rows = f.by_speed();
  for (const Row& row : f.rows) {
    if (!f.counts(row) && f.point(row).prediction && !f.point(row).same_as) rows.push_back(&row);
  }
  for (const Row* row : rows) {
    const std::optional<Prediction>& prediction = f.point(*row).prediction;
    const double planned = prediction ? largest(prediction->peak_bytes) : row->planned_bytes;
    const double limit = prediction ? prediction->limit_bytes : 0;
    const double used = f.best_memory_bytes(*row) > 0 ? f.best_memory_bytes(*row) : planned;
    section.table.rows.push_back({{number_of(*row)},
                                  {f.point(*row).label()},
                                  {to_string(row->state)},
                                  {bytes_or_dash(planned)},
                                  {bytes_or_dash(row->allocated_bytes)},
                                  {bytes_or_dash(row->device_bytes)},
                                  {bytes_or_dash(limit)},
                                  {limit > 0 && used > 0 ? percent(used / limit) : "—"}});
    if (chart.categories.size() >= most_bars) continue;
    const double place = static_cast<double>(chart.categories.size());
    const std::array<double, 4> values{planned, row->allocated_bytes, row->device_bytes, limit};
    for (std::size_t n = 0; n < values.size(); ++n) {
      if (values[n] > 0) chart.series[n].values.push_back({place, values[n] / gib, std::nullopt, chart.series[n].name});
    }
    chart.categories.push_back(bar_name(f, *row));
  }
  section.text += of_how_many(chart.categories.size(), rows.size());
  if (!rows.empty()) section.chart = std::move(chart);
  return section;
}

Section pareto_section(const Findings& f) {
  Section section{
      "pareto", "Speed and memory",
      fmt::format(
          "{} per device against the memory of the fullest rank. The line joins the points that no other beats in both.",
          f.speed_unit())};
  section.table.columns = {{"point", true},
                           {"", false},
                           {"memory", true},
                           {fmt::format("{} per device", f.speed_unit()), true},
                           {"beaten by", false}};
  Chart chart{.description = "Speed against memory, with the points that no other beats in both.",
              .x = {"GiB of the fullest rank", false},
              .y = {fmt::format("{} per device", f.speed_unit()), false},
              .series = {{"beaten by none", Look::measured}, {"beaten by another", Look::others}}};
  std::vector<const Row*> rows = f.by_speed();
  std::erase_if(rows, [&](const Row* row) { return !(f.best_memory_bytes(*row) > 0); });
  // From the fastest down: a point that needs no less memory than a faster one is beaten by it.
  const Row* leanest = nullptr;
  for (const Row* row : rows) {
    const double memory = f.best_memory_bytes(*row);
    const bool is_beaten = leanest != nullptr && memory >= f.best_memory_bytes(*leanest);
    chart.series[is_beaten ? 1 : 0].values.push_back(
        {memory / gib, f.speed_per_device(*row).value, std::nullopt, f.point(*row).label()});
    section.table.rows.push_back({{number_of(*row)},
                                  {f.point(*row).label()},
                                  {format_bytes(memory)},
                                  {figure(f.speed_per_device(*row).value)},
                                  {is_beaten ? bar_name(f, *leanest) : "none"}});
    if (!is_beaten) leanest = row;
  }
  if (!rows.empty()) section.chart = std::move(chart);
  return section;
}

}  // namespace plait::study
