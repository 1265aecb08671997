#include "study/report/findings.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "config/schema.h"
#include "core/units.h"

namespace plait::study {
namespace {

double flops_per_step(const PointFacts& facts) {
  return facts.model_flops_per_token * static_cast<double>(facts.tokens_per_step());
}

}  // namespace

std::vector<Account> accounts_of(const parallel::Ledger& ledger) {
  std::vector<Account> accounts{{"compute", ledger.compute_ms}};
  for (const parallel::CommunicationKind kind : parallel::communication_kinds)
    accounts.push_back({parallel::to_string(kind), ledger.of(kind).exposed_ms});
  accounts.push_back({"bubble", ledger.bubble_ms});
  accounts.push_back({"other", ledger.other_ms});
  return accounts;
}

Findings::Findings(const StudyData& of) : data(of), rows(rows_of(of)), planner(planner_verdict(of, rows)) {
  std::set<double> models;
  for (const Row* row : measured()) models.insert(facts(*row).model_flops_per_token);
  for (const SimulatedPoint& point : of.simulated) {
    if (point.facts) models.insert(point.facts->model_flops_per_token);
  }
  same_model = models.size() <= 1;
}

bool Findings::counts(const Row& row) const { return row.rounds > 0 && data.failure_of(row.point) == nullptr; }

std::vector<const Row*> Findings::measured() const {
  std::vector<const Row*> found;
  for (const Row& row : rows) {
    if (counts(row)) found.push_back(&row);
  }
  return found;
}

std::vector<const Row*> Findings::by_speed() const {
  std::vector<const Row*> found = measured();
  std::ranges::stable_sort(found, std::ranges::greater{}, &Row::model_flops_per_second_per_device);
  return found;
}

std::vector<const Row*> Findings::best_of_each_size() const {
  std::map<int, const Row*> best;
  for (const Row* row : by_speed()) best.try_emplace(facts(*row).ranks, row);
  std::vector<const Row*> found;
  for (const auto& [ranks, row] : best) found.push_back(row);
  return found;
}

const Row* Findings::best() const {
  const std::vector<const Row*> found = best_of_each_size();
  return found.empty() ? nullptr : found.back();
}

double Findings::best_memory_bytes(const Row& row) const {
  return row.device_bytes > 0 ? row.device_bytes : row.allocated_bytes;
}

double Findings::speed(const PointFacts& facts, double step_ms) const {
  const double work = same_model ? static_cast<double>(facts.tokens_per_step()) : flops_per_step(facts) / tera;
  return step_ms > 0 ? work / (step_ms / to_ms) : 0;
}

Estimate Findings::speed_per_device(const Row& row) const {
  const auto per_device = [&](double ms) { return speed(facts(row), ms) / facts(row).ranks; };
  const Interval& step = row.step_ms.interval;
  const bool has_interval = row.step_ms.has_interval();
  return {per_device(row.step_ms.value), has_interval ? Interval{per_device(step.high), per_device(step.low)} : step};
}

std::optional<double> Findings::predicted_cost(const Point& point) const {
  if (!point.facts || !point.prediction || !(point.prediction->step_ms > 0)) return std::nullopt;
  return point.prediction->step_ms * point.facts->ranks / flops_per_step(*point.facts);
}

std::string Findings::why_not_measured(const Row& row) const {
  const Point& at = point(row);
  if (at.pruning) return at.pruned_because;
  if (const Round* failure = data.failure_of(row.point))
    return fmt::format("{}{} (round {}, {})", failure->message.empty() ? "" : failure->message,
                       failure->message.empty() ? "it said nothing" : "", failure->round, failure->log);
  if (row.state == PointState::ok) return "";
  const auto range = config::round_range(data.config.study.measure.rounds);
  const std::string rounds = fmt::format("{} of {} rounds", row.rounds, range ? std::to_string(range->most) : "?");
  return row.state == PointState::over_budget ? rounds + " when study.budget.minutes were used up"
                                              : rounds + "; --resume goes on";
}

std::string label_of(const Coordinates& coordinates) {
  Point point;
  point.coordinates = coordinates;
  return point.label();
}

std::string runs_as(const PointFacts& facts) {
  std::string text = axes_text(AxisSet::all(), " ",
                               [&](const AxisRow& row) { return fmt::format("{}={}", row.name, facts.layout.size(row.axis)); });
  if (facts.layout.size(stage_axis) > 1) text += " schedule=" + facts.schedule;
  if (facts.virtual_stages > 1) text += fmt::format(" virtual_stages={}", facts.virtual_stages);
  if (facts.zero > 0) text += fmt::format(" zero={}", facts.zero);
  if (facts.recompute != "none") text += " recompute=" + facts.recompute;
  return text + fmt::format(", {} × {} sequences", facts.micro_batches, facts.micro_batch);
}

std::string figure(double value) {
  if (!std::isfinite(value)) return "—";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e15 || size < 1e-4) return fmt::format("{:.3e}", value);
  const int digits = std::clamp(3 - static_cast<int>(std::floor(std::log10(size))), 0, 7);
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string figure(const Estimate& e) {
  if (!e.has_interval()) return figure(e.value);
  return fmt::format("{} ({} to {})", figure(e.value), figure(e.interval.low), figure(e.interval.high));
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string percent(const Estimate& e) {
  if (!e.has_interval()) return percent(e.value);
  return fmt::format("{:.1f} % ({:.1f} to {:.1f})", 100 * e.value, 100 * e.interval.low, 100 * e.interval.high);
}

}  // namespace plait::study
