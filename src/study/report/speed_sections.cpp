// Sections on speed against the number of ranks, measured and simulated.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>

#include "core/parse_number.h"
#include "study/report/sections.h"

namespace plait::study {
namespace {

std::string interval_text(const Estimate& e) {
  if (!e.has_interval()) return "—";
  return fmt::format("{} to {}", figure(e.interval.low), figure(e.interval.high));
}

Cell cell(std::string text) { return {std::move(text)}; }

std::string what_grows(const Findings& f) {
  switch (f.data.config.study.scaling) {
    case Scaling::strong: return "Strong scaling: the global batch stays the same.";
    case Scaling::weak: return "Weak scaling: the batch grows with the ranks.";
    case Scaling::model: return "Model scaling: the model grows with the ranks.";
    case Scaling::isoflop: break;  // has its own sections
  }
  return "";
}

Estimate whole_speed(const Findings& f, const Row& row) {
  Estimate e = f.speed_per_device(row);
  const double ranks = f.facts(row).ranks;
  return {ranks * e.value, {ranks * e.interval.low, ranks * e.interval.high}};
}

// The points that are not the best of their size.
std::vector<const Row*> other_points(const Findings& f, const std::vector<const Row*>& best) {
  std::vector<const Row*> found;
  for (const Row* row : f.measured()) {
    if (std::ranges::find(best, row) == best.end()) found.push_back(row);
  }
  return found;
}

// The value of a simulated point: its speed, and its band.
std::optional<ChartValue> simulated_value(const Findings& f, const SimulatedPoint& point) {
  if (!point.facts || !point.prediction || !(point.prediction->step_ms > 0)) return std::nullopt;
  const double step = point.prediction->step_ms;
  ChartValue value{static_cast<double>(point.gpus), f.speed(*point.facts, step), std::nullopt, label_of(point.coordinates)};
  if (point.least_ratio && point.most_ratio)
    value.interval =
        Interval{f.speed(*point.facts, step * *point.most_ratio), f.speed(*point.facts, step * *point.least_ratio)};
  return value;
}

}  // namespace

Section throughput_section(const Findings& f) {
  const std::vector<const Row*> best = f.best_of_each_size();
  Section section{"throughput", "Throughput", what_grows(f)};
  section.text += fmt::format(
      " The line joins the fastest point of each number of ranks; a value is the median over rounds, with its 95 % interval by "
      "order statistics (with five rounds or fewer it spans all of them; one round has none). Ideal: as many times the first "
      "as there are ranks.");
  section.table.columns = {{"ranks", true},         {"point", false},   {fmt::format("{}, all ranks", f.speed_unit()), true},
                           {"95 % interval", true}, {"of ideal", true}, {"step, ms", true},
                           {"rounds", true}};
  if (best.empty()) return section;
  const Row& first = *best.front();
  const double per_rank = f.speed_per_device(first).value;
  Chart chart{.description = "Throughput of the fastest point of each number of ranks, beside the ideal line.",
              .x = {"ranks", true},
              .y = {fmt::format("{}, all ranks", f.speed_unit()), true},
              .series = {{"fastest of its size", Look::measured}, {"ideal", Look::ideal}, {"other points", Look::others}}};
  for (const Row* row : best) {
    const double ranks = f.facts(*row).ranks;
    const Estimate speed = whole_speed(f, *row);
    chart.series[0].values.push_back({ranks, speed.value, speed.interval, f.point(*row).label()});
    chart.series[1].values.push_back({ranks, ranks * per_rank, std::nullopt, "ideal"});
    section.table.rows.push_back({cell(std::to_string(f.facts(*row).ranks)), cell(f.point(*row).label()),
                                  cell(figure(speed.value)), cell(interval_text(speed)),
                                  cell(percent(speed.value / (ranks * per_rank))), cell(figure(row->step_ms.value)),
                                  cell(std::to_string(row->rounds))});
  }
  for (const Row* row : other_points(f, best))
    chart.series[2].values.push_back(
        {static_cast<double>(f.facts(*row).ranks), whole_speed(f, *row).value, std::nullopt, f.point(*row).label()});
  section.chart = std::move(chart);
  return section;
}

Section efficiency_section(const Findings& f) {
  Section section{"efficiency", "Efficiency", ""};
  section.table.columns = {{"ranks", true}, {"point", false}, {"efficiency", true}, {"interval", true}};
  if (!f.data.baseline) {
    section.text = "There is no point that the others could be compared with.";
    return section;
  }
  section.text = fmt::format(
      "Model FLOP/s per device, relative to {}: the median of the ratios within rounds, which saw the same machine. The "
      "interval is a bootstrap's, of rounds and of the steps within them: of 95 % of many rounds, too narrow of few; one round "
      "has none.",
      f.data.points[static_cast<std::size_t>(*f.data.baseline)].label());
  Chart chart{
      .description = "Efficiency of the most efficient point of each number of ranks.",
      .x = {"ranks", true},
      .y = {"efficiency, %", false},
      .series = {{"most efficient of its size", Look::measured}, {"ideal", Look::ideal}, {"other points", Look::others}}};
  std::vector<const Row*> rows = f.measured();
  std::erase_if(rows, [](const Row* row) { return !row->efficiency; });
  std::ranges::stable_sort(rows, [&](const Row* a, const Row* b) {
    return std::pair(f.facts(*a).ranks, -a->efficiency->value) < std::pair(f.facts(*b).ranks, -b->efficiency->value);
  });
  int size = 0;
  for (const Row* row : rows) {
    const Estimate& e = *row->efficiency;
    const int ranks = f.facts(*row).ranks;
    const ChartValue value{static_cast<double>(ranks), 100 * e.value, Interval{100 * e.interval.low, 100 * e.interval.high},
                           f.point(*row).label()};
    section.table.rows.push_back(
        {cell(std::to_string(ranks)), cell(f.point(*row).label()), cell(percent(e.value)),
         cell(e.has_interval() ? fmt::format("{} to {}", percent(e.interval.low), percent(e.interval.high)) : "—")});
    const bool best = ranks != size;
    chart.series[best ? 0 : 2].values.push_back(value);
    if (best) chart.series[1].values.push_back({value.x, 100, std::nullopt, "ideal"});
    size = ranks;
  }
  if (const auto bound = percentage(f.data.config.study.bounds.efficiency); bound && !rows.empty()) {
    chart.series.push_back({"study.bounds.efficiency", Look::limit});
    for (const ChartValue& value : chart.series[1].values)
      chart.series.back().values.push_back({value.x, 100 * *bound, std::nullopt, "bound"});
  }
  if (!rows.empty()) section.chart = std::move(chart);
  return section;
}

std::optional<Section> extrapolation_section(const Findings& f) {
  if (f.data.simulated.empty()) return std::nullopt;
  Section section{
      "extrapolation", "Beyond the machine (simulated)",
      "Dashed: simulated, not measured. The band around the simulated value is what measured / predicted steps of this study "
      "span (5th to 95th percentile) where five were predicted from the same figures, else what the nominal figures of that "
      "device are off by."};
  section.table.columns = {
      {"GPUs", true}, {"device, network", false}, {"point", false}, {fmt::format("simulated {}", f.speed_unit()), true},
      {"band", true}, {"step, ms", true},         {"bubble", true}, {"refused because", false}};
  Chart chart{.description = "Measured throughput, and simulated throughput of larger machines.",
              .x = {"GPUs", true},
              .y = {fmt::format("{}, all GPUs", f.speed_unit()), true},
              .series = {{"measured", Look::measured}}};
  for (const Row* row : f.best_of_each_size()) {
    const Estimate speed = whole_speed(f, *row);
    chart.series[0].values.push_back(
        {static_cast<double>(f.facts(*row).ranks), speed.value, speed.interval, f.point(*row).label()});
  }
  std::map<std::string, std::map<int, ChartValue>> fastest;  // by machine and size
  for (const SimulatedPoint& point : f.data.simulated) {
    const std::string machine = point.device + ", " + point.network;
    const auto value = simulated_value(f, point);
    std::vector<Cell> row{cell(std::to_string(point.gpus)), cell(machine), cell(label_of(point.coordinates))};
    if (value) {
      row.push_back(cell(figure(value->y)));
      row.push_back(
          cell(value->interval ? fmt::format("{} to {}", figure(value->interval->low), figure(value->interval->high)) : "—"));
      row.push_back(cell(figure(point.prediction->step_ms)));
      row.push_back(cell(percent(point.prediction->bubble_fraction)));
      auto& of_machine = fastest[machine];
      const auto [at, is_new] = of_machine.try_emplace(point.gpus, *value);
      if (!is_new && value->y > at->second.y) at->second = *value;
    } else {
      for (int n = 0; n < 4; ++n) row.push_back(cell("—"));
    }
    row.push_back(cell(point.refused));
    section.table.rows.push_back(std::move(row));
  }
  for (const auto& [machine, values] : fastest) {
    Series series{"simulated: " + machine, Look::simulated};
    for (const auto& [gpus, value] : values) series.values.push_back(value);
    chart.series.push_back(std::move(series));
  }
  if (!fastest.empty()) section.chart = std::move(chart);
  return section;
}

}  // namespace plait::study
