#include "study/fit_report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace plait::study {
namespace {

using Json = nlohmann::ordered_json;
using LawFigure = std::function<double(const ScalingLaw&)>;

constexpr double extrapolation = 10;  // multiple of the largest budget: a decade, the usual limit of trust in such fits

struct NamedEstimate {
  const char* name;
  LawFigure of;
};

std::vector<NamedEstimate> unknowns_of_law() {
  return {{"E", [](const ScalingLaw& l) { return l.E; }},
          {"A", [](const ScalingLaw& l) { return l.A; }},
          {"alpha", [](const ScalingLaw& l) { return l.alpha; }},
          {"B", [](const ScalingLaw& l) { return l.B; }},
          {"beta", [](const ScalingLaw& l) { return l.beta; }}};
}

std::vector<NamedEstimate> exponents_of_optimum() {
  return {{"parameter_exponent", [](const ScalingLaw& l) { return l.parameter_exponent(); }},
          {"token_exponent", [](const ScalingLaw& l) { return 1 - l.parameter_exponent(); }}};
}

std::vector<NamedEstimate> optimum_at(double flops) {
  const auto best_loss = [flops](const ScalingLaw& l) { return l.loss(l.best_parameters(flops), l.best_tokens(flops)); };
  return {{"parameters", [flops](const ScalingLaw& l) { return l.best_parameters(flops); }},
          {"tokens", [flops](const ScalingLaw& l) { return l.best_tokens(flops); }},
          {"loss", best_loss}};
}

// JSON has no infinity: an infinite end is null.
Json estimate(double value, const Interval& interval) {
  const auto end = [](double x) { return std::isfinite(x) ? Json(x) : Json(); };
  return {{"value", value}, {"low", end(interval.low)}, {"high", end(interval.high)}};
}

Json estimates(const ScalingLawFit& fit, const std::vector<NamedEstimate>& values) {
  Json json = Json::object();
  for (const NamedEstimate& named : values) json[named.name] = estimate(named.of(fit.law), fit.interval(named.of));
  return json;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string cell(double value, const Interval& interval) {
  if (std::isnan(interval.low) || std::isnan(interval.high)) return fmt::format("{:.4g} | —", value);
  return fmt::format("{:.4g} | {:.4g} to {:.4g}", value, interval.low, interval.high);
}

std::string law_markdown(const LossFit& fit) {
  const ScalingLawFit& law = fit.law;
  std::string text = fmt::format(
      "L(N, D) = {:.4g} + {:.4g} / N^{:.4f} + {:.4g} / D^{:.4f}, in nats per token; runs lie {:.2g} % off it (robust standard "
      "deviation). Intervals are of {:g} %, from {} bootstraps and widened for few runs.\n\n| | value | interval |\n| --- | "
      "--- | --- |\n",
      law.law.E, law.law.A, law.law.alpha, law.law.B, law.law.beta, 100 * law.residual_scale, 100 * law.confidence,
      law.bootstraps.size());
  for (const NamedEstimate& named : unknowns_of_law())
    text += fmt::format("| {} | {} |\n", named.name, cell(named.of(law.law), law.interval(named.of)));
  const LawFigure a = exponents_of_optimum().front().of;
  text += fmt::format("| a, of the best N ~ C^a | {} |\n", cell(a(law.law), law.interval(a)));
  text +=
      "\n## Best size and tokens\n\n| C, FLOPs | best N | interval | best D | interval | loss | interval |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const double flops : fit.budgets) {
    text += fmt::format("| {:.3g}{}", flops, fit.extrapolates(flops) ? " (extrapolated)" : "");
    for (const NamedEstimate& named : optimum_at(flops)) text += " | " + cell(named.of(law.law), law.interval(named.of));
    text += " |\n";
  }
  return text;
}

std::string isoflop_markdown(const IsoflopFit& fit) {
  std::string text =
      "\n## Budget by budget\n\nThe minimum of a parabola over log N, fitted to the losses of each budget around the "
      "lowest.\n\n"
      "| C, FLOPs | runs | fitted | best N | interval | D | loss |\n| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const IsoflopMinimum& budget : fit.budgets) {
    text += fmt::format("| {:.3g} | {} | {} | ", budget.flops, budget.runs, budget.fitted);
    text += budget.refused.empty()
                ? fmt::format("{} | {:.4g} | {:.4g} |\n", cell(budget.parameters, budget.parameters_interval), budget.tokens,
                              budget.loss)
                : budget.refused + " | | | |\n";
  }
  text += "\n" + (fit.refused.empty()
                      ? fmt::format("Best N = {:.3g} · C^{:.4f}; the exponent's interval is {:.4f} to {:.4f}.", fit.coefficient,
                                    fit.exponent, fit.exponent_interval.low, fit.exponent_interval.high)
                      : "No power law: " + fit.refused + ".");
  return text + "\n";
}

}  // namespace

std::string LossFit::refused() const {
  if (!law.refused.empty()) return law.refused;
  const auto has_none = [](const IsoflopMinimum& budget) { return !budget.refused.empty(); };
  if (isoflop.budgets.empty() || !std::ranges::all_of(isoflop.budgets, has_none)) return "";
  return fmt::format("no budget has its minimum inside the sizes that were run; of the largest, {:.3g} FLOPs: {}",
                     isoflop.budgets.back().flops, isoflop.budgets.back().refused);
}

bool LossFit::extrapolates(double flops) const { return flops > most_flops * (1 + budget_tolerance); }

LossFit fit_losses(std::span<const LossPoint> points, const ScalingLawOptions& options) {
  LossFit fit;
  fit.runs = static_cast<int>(points.size());
  fit.options = options;
  fit.law = fit_scaling_law(points, options);
  fit.isoflop = fit_isoflop_profiles(points, options);
  double least = 0;
  for (const LossPoint& point : points) {
    const double flops = training_flops(point.parameters, point.tokens);
    least = least == 0 ? flops : std::min(least, flops);
    fit.most_flops = std::max(fit.most_flops, flops);
  }
  for (const IsoflopMinimum& budget : fit.isoflop.budgets) fit.budgets.push_back(budget.flops);
  if (fit.budgets.empty()) fit.budgets = {least, fit.most_flops};
  fit.budgets.push_back(extrapolation * fit.most_flops);
  return fit;
}

Json to_json(const LossFit& fit) {
  const std::string refused = fit.refused();
  Json json = {{"runs", fit.runs},         {"confidence", fit.options.confidence}, {"bootstraps", fit.options.bootstraps},
               {"seed", fit.options.seed}, {"refused", text_or_null(refused)},     {"law", nullptr},
               {"optimum", nullptr}};
  if (refused.empty()) {
    json["law"] = estimates(fit.law, unknowns_of_law());
    json["law"]["residual_scale"] = fit.law.residual_scale;
    json["optimum"] = estimates(fit.law, exponents_of_optimum());
    Json budgets = Json::array();
    for (const double flops : fit.budgets) {
      Json budget = {{"flops", flops}, {"extrapolated", fit.extrapolates(flops)}};
      budget.update(estimates(fit.law, optimum_at(flops)));
      budgets.push_back(std::move(budget));
    }
    json["optimum"]["budgets"] = std::move(budgets);
  }
  const IsoflopFit& isoflop = fit.isoflop;
  Json budgets = Json::array();
  for (const IsoflopMinimum& budget : isoflop.budgets) {
    const bool there = budget.refused.empty();
    budgets.push_back({{"flops", budget.flops},
                       {"runs", budget.runs},
                       {"fitted", budget.fitted},
                       {"refused", text_or_null(budget.refused)},
                       {"parameters", there ? estimate(budget.parameters, budget.parameters_interval) : Json()},
                       {"tokens", there ? Json(budget.tokens) : Json()},
                       {"loss", there ? Json(budget.loss) : Json()}});
  }
  const bool power_law = isoflop.refused.empty();
  json["isoflop"] = {{"refused", text_or_null(isoflop.refused)},
                     {"parameter_exponent", power_law ? estimate(isoflop.exponent, isoflop.exponent_interval) : Json()},
                     {"coefficient", power_law ? Json(isoflop.coefficient) : Json()},
                     {"budgets", std::move(budgets)}};
  return json;
}

std::string to_markdown(const LossFit& fit) {
  std::string text = fmt::format("# Scaling law of {} runs\n\n", fit.runs);
  const std::string refused = fit.refused();
  text += refused.empty() ? law_markdown(fit) : "Refused: " + refused + ".\n";
  if (!fit.isoflop.budgets.empty()) text += isoflop_markdown(fit.isoflop);
  return text;
}

}  // namespace plait::study
