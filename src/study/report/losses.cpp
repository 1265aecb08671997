#include "study/report/losses.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "config/schema.h"
#include "core/error.h"
#include "core/format.h"
#include "core/terminal.h"
#include "core/text_table.h"

namespace plait::study {
namespace {

constexpr int steps_of_a_curve = 24;

std::string count(double value) { return format_count(value); }

// A point's coordinates besides its size and its budget.
Coordinates other_coordinates(const Point& point) {
  Coordinates left = point.coordinates;
  std::erase_if(left, [](const auto& at) { return config::is_isoflop_axis(at.first); });
  return left;
}

std::vector<std::string> axes_with_several_values(const LossFindings& losses) {
  std::vector<std::string> axes;
  std::map<std::string, std::string> first;  // value, by axis
  for (const LossRow& row : losses.rows) {
    for (const auto& [key, value] : other_coordinates(losses.findings.point(*row.row))) {
      const bool differs = first.try_emplace(key, value).first->second != value;
      if (differs && std::ranges::find(axes, key) == axes.end()) axes.push_back(key);
    }
  }
  return axes;
}

std::string listed(const std::vector<std::string>& axes) { return fmt::format("{}", fmt::join(axes, ", ")); }

// The rows of each budget, as the fit groups runs, and of one value of each other axis.
std::vector<std::vector<LossRow>> by_budget(const LossFindings& losses) {
  std::vector<std::vector<LossRow>> budgets;
  const auto others = [&](const LossRow& row) { return other_coordinates(losses.findings.point(*row.row)); };
  for (const LossRow& row : losses.rows) {
    const bool is_next = budgets.empty() || row.flops() > budgets.back().front().flops() * (1 + budget_tolerance) ||
                         others(row) != others(budgets.back().front());
    if (is_next) budgets.emplace_back();
    budgets.back().push_back(row);
  }
  for (auto& budget : budgets) std::ranges::sort(budget, {}, [](const LossRow& row) { return row.point.parameters; });
  return budgets;
}

std::string range(const Interval& interval, std::string (*text)(double)) {
  if (std::isnan(interval.low) || std::isnan(interval.high)) return "— (three sizes leave nothing to resample)";
  return fmt::format("{} to {}", text(interval.low), text(interval.high));
}

void add_parabolas(Table& table, const IsoflopFit& fit) {
  for (const IsoflopMinimum& budget : fit.budgets) {
    const bool found = budget.refused.empty();
    table.rows.push_back({{fmt::format("parabola: best N of {:.3g} FLOPs", budget.flops)},
                          {found ? count(budget.parameters) : "—"},
                          {found ? range(budget.parameters_interval, count) : budget.refused}});
  }
}

const LossRow& lowest(const LossFindings& losses) {
  return *std::ranges::min_element(losses.rows, {}, [](const LossRow& row) { return row.point.loss; });
}

}  // namespace

LossFindings::LossFindings(const Findings& of) : findings(of) {
  std::vector<LossPoint> points;
  for (const Row* row : findings.measured()) {
    const Measurement& measured = findings.data.measured_rounds_of(row->point).back()->measured.value();
    if (!measured.validation_loss || !measured.tokens) continue;
    const LossPoint point{static_cast<double>(findings.facts(*row).matrix_parameters), static_cast<double>(*measured.tokens),
                          *measured.validation_loss};
    rows.push_back({row, point});
    points.push_back(point);
  }
  std::ranges::stable_sort(
      rows, {}, [&](const LossRow& row) { return std::pair(other_coordinates(findings.point(*row.row)), row.flops()); });
  other_axes = axes_with_several_values(*this);
  if (!other_axes.empty()) {
    refused = fmt::format("points differ in {} too, and no law of sizes and tokens is of them all", listed(other_axes));
    return;
  }
  try {
    fit = fit_losses(points);
    refused = fit->refused();
  } catch (const ConfigError& error) {
    refused = error.what();
  }
}

std::vector<std::string> sentences_of(const LossFindings& losses) {
  if (losses.rows.empty()) {
    return {"No point has a validation loss yet.", "So there is no law.", "`plait study --resume` goes on where it stopped."};
  }
  const LossRow& best = lowest(losses);
  const std::string least =
      fmt::format("the lowest loss, {}, is that of {}: {} parameters on {} tokens", figure(best.point.loss),
                  losses.findings.point(*best.row).label(), count(best.point.parameters), count(best.point.tokens));
  if (!losses.refused.empty()) {
    return {"There is no law; " + least + ".", fmt::format("It is refused: {}.", losses.refused),
            losses.other_axes.empty()
                ? "More sizes and budgets, around those where the losses of a budget turn up again, would give one."
                : fmt::format("A study of its own for each value of {} would give one.", listed(losses.other_axes))};
  }
  const LossFit& fit = *losses.fit;
  const ScalingLaw& law = fit.law.law;
  const double flops = fit.most_flops, more = fit.budgets.back();
  const double n = law.best_parameters(flops), d = law.best_tokens(flops);
  const double of_size = law.A / std::pow(n, law.alpha), of_data = law.B / std::pow(d, law.beta);
  const auto best_n = [flops](const ScalingLaw& l) { return l.best_parameters(flops); };
  return {
      fmt::format("For {:.2g} FLOPs, the largest budget, the best size is {} parameters ({}) on {} tokens; {}.", flops,
                  count(n), range(fit.law.interval(best_n), count), count(d), least),
      fmt::format("Of the loss of {} there, {} is beyond any size and any number of tokens, {} is for the size and {} for the "
                  "tokens.",
                  figure(law.loss(n, d)), figure(law.E), figure(of_size), figure(of_data)),
      fmt::format("Ten times the compute, best spent on {} parameters and {} tokens, is extrapolated to a loss of {}.",
                  count(law.best_parameters(more)), count(law.best_tokens(more)),
                  figure(law.loss(law.best_parameters(more), law.best_tokens(more))))};
}

Section losses_section(const LossFindings& losses) {
  Section section{
      "losses", "Loss by size and budget",
      fmt::format("The validation loss of the last step, {}. Parameters are the matrices that multiply every "
                  "token; a budget is 6 FLOPs for each of them and each token.",
                  losses.other_axes.empty() ? "on the same tokens for all points"
                                            : "which cannot be compared where points differ in " + listed(losses.other_axes))};
  section.table.columns = {{"FLOPs", true}, {"parameters", true}, {"tokens", true}, {"validation loss", true},
                           {"law", true},   {"off by", true},     {"point", false}};
  Chart chart{.description = "Validation loss over the number of parameters, a line for each budget.",
              .x = {"parameters", true},
              .y = {"validation loss, nats per token", false}};
  const ScalingLaw* law = losses.refused.empty() ? &losses.fit->law.law : nullptr;
  for (const std::vector<LossRow>& budget : by_budget(losses)) {
    const double flops = budget.front().flops();
    std::string name = fmt::format("{:.2g} FLOPs", flops);
    if (!losses.other_axes.empty()) name += ", " + label_of(other_coordinates(losses.findings.point(*budget.front().row)));
    Series measured{std::move(name), Look::measured};
    for (const LossRow& row : budget) {
      const LossPoint& p = row.point;
      const std::string label = losses.findings.point(*row.row).label();
      measured.values.push_back({p.parameters, p.loss, std::nullopt, label});
      const double expected = law != nullptr ? law->loss(p.parameters, p.tokens) : 0;
      section.table.rows.push_back({{fmt::format("{:.3g}", row.flops())},
                                    {count(p.parameters)},
                                    {count(p.tokens)},
                                    {fmt::format("{:.4f}", p.loss)},
                                    {law != nullptr ? fmt::format("{:.4f}", expected) : "—"},
                                    {law != nullptr ? fmt::format("{:+.2f} %", 100 * (p.loss / expected - 1)) : "—"},
                                    {label}});
    }
    Series curve{fmt::format("law, {:.2g} FLOPs", flops), Look::ideal};
    const double first = budget.front().point.parameters, last = budget.back().point.parameters;
    for (int n = 0; law != nullptr && n <= steps_of_a_curve; ++n) {
      const double parameters = first * std::pow(last / first, static_cast<double>(n) / steps_of_a_curve);
      curve.values.push_back({parameters, law->loss(parameters, flops / training_flops(parameters, 1)), std::nullopt, "law"});
    }
    chart.series.push_back(std::move(measured));
    if (!curve.values.empty()) chart.series.push_back(std::move(curve));
  }
  if (!losses.rows.empty()) section.chart = std::move(chart);
  return section;
}

Section law_section(const LossFindings& losses) {
  Section section{"law", "Scaling law", ""};
  section.table.columns = {{"", false}, {"value", true}, {"interval", true}};
  if (!losses.refused.empty()) {
    section.text = "There is none: " + losses.refused + ".";
    if (losses.fit) add_parabolas(section.table, losses.fit->isoflop);
    return section;
  }
  const ScalingLawFit& fit = losses.fit->law;
  section.text = fmt::format(
      "L(N, D) = E + A / N^alpha + B / D^beta, from {} runs that lie {:.2g} % off it (robust standard deviation). Intervals "
      "are "
      "of {:g} %, from {} bootstraps and widened for few runs. The best N and D of a budget are where the law is least; below "
      "them what a parabola through each budget's losses says without the law.",
      losses.fit->runs, 100 * fit.residual_scale, 100 * fit.confidence, fit.bootstraps.size());
  const auto add = [&](const std::string& name, const std::function<double(const ScalingLaw&)>& of,
                       std::string (*text)(double) = figure) {
    section.table.rows.push_back({{name}, {text(of(fit.law))}, {range(fit.interval(of), text)}});
  };
  add("E", [](const ScalingLaw& l) { return l.E; });
  add("A", [](const ScalingLaw& l) { return l.A; });
  add("alpha", [](const ScalingLaw& l) { return l.alpha; });
  add("B", [](const ScalingLaw& l) { return l.B; });
  add("beta", [](const ScalingLaw& l) { return l.beta; });
  add("a, best N ~ C^a", [](const ScalingLaw& l) { return l.parameter_exponent(); });
  for (const double flops : losses.fit->budgets) {
    const std::string at = fmt::format("{:.3g} FLOPs{}", flops, losses.fit->extrapolates(flops) ? " (extrapolated)" : "");
    add("best N of " + at, [flops](const ScalingLaw& l) { return l.best_parameters(flops); }, count);
    add("best D of " + at, [flops](const ScalingLaw& l) { return l.best_tokens(flops); }, count);
  }
  add_parabolas(section.table, losses.fit->isoflop);
  return section;
}

std::string loss_table(const StudyData& data, int width) {
  const Findings findings(data);
  const LossFindings losses(findings);
  TextTable table({{"point"}, {"state", Align::left}, {"N"}, {"tokens"}, {"FLOPs"}, {"loss"}, {"what", Align::left}});
  for (const Row& row : findings.rows) {
    const std::string why = findings.why_not_measured(row);
    const std::string what = findings.point(row).label() + (why.empty() ? "" : ": " + why);
    const auto found = std::ranges::find(losses.rows, &row, &LossRow::row);
    if (found == losses.rows.end()) {
      table.add({std::to_string(row.point), to_string(row.state), "", "", "", "", what});
      continue;
    }
    table.add({std::to_string(row.point), to_string(row.state), count(found->point.parameters), count(found->point.tokens),
               fmt::format("{:.3g}", found->flops()), fmt::format("{:.4f}", found->point.loss), what});
  }
  std::string text = table.text(width);
  for (const std::string& sentence : sentences_of(losses)) text += folded(sentence, width) + "\n";
  return text;
}

}  // namespace plait::study
