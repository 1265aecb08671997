#include "study/report/sections.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/format.h"

namespace plait::study {
namespace {

// If all accounts but compute together take less of a step than this, the kernels are its limit.
constexpr double little = 0.05;
// A layout loses clearly less to an account than another if its share of the step is below this part of the other's.
constexpr double clearly_less = 0.9;

std::string ranks_text(int ranks) { return fmt::format("{} {}", ranks, ranks == 1 ? "rank" : "ranks"); }

std::vector<std::string> nothing_measured(const Findings& f) {
  std::string states;
  for (const Name<PointState>& state : names<PointState>) {
    const auto count = std::ranges::count(f.rows, state.value, &Row::state);
    if (count > 0) states += fmt::format("{}{} {}", states.empty() ? "" : ", ", count, state.text);
  }
  const auto with_reason = std::ranges::find_if(f.rows, [&](const Row& row) { return !f.why_not_measured(row).empty(); });
  std::string limit = "Nothing says why.", change = "`plait study --resume` goes on where it stopped.";
  if (with_reason != f.rows.end()) {
    limit = fmt::format("The first of them, {}: {}.", f.point(*with_reason).label(), f.why_not_measured(*with_reason));
    const auto why = f.point(*with_reason).pruning;
    if (why == Pruning::skip) change = "Another study.skip would leave points to measure.";
    if (why == Pruning::rule) change = "A point that follows that rule could run.";
    if (why == Pruning::memory) change = "Another layout, a smaller batch or more memory would make a point that can run.";
    if (f.data.failure_of(with_reason->point) != nullptr) change = "The log of that round says what has to be mended first.";
  }
  return {fmt::format("No point was measured: {}.", states), limit, change};
}

// The largest account but compute.
Account largest_loss(const parallel::Ledger& ledger) {
  const std::vector<Account> accounts = accounts_of(ledger);
  return *std::max_element(accounts.begin() + 1, accounts.end(),
                           [](const Account& a, const Account& b) { return a.ms < b.ms; });
}

bool is_limited_by_compute(const parallel::Ledger& ledger) {
  return ledger.step_ms > 0 && ledger.step_ms - ledger.compute_ms < little * ledger.step_ms;
}

std::string best_sentence(const Findings& f, const Row& best) {
  const int ranks = f.facts(best).ranks;
  std::ptrdiff_t alike = 0, others = 0;
  for (const Row* row : f.measured()) {
    if (row->point == best.point || f.facts(*row).ranks != ranks) continue;
    ++others;
    const bool one_round = best.rounds < 2 || row->rounds < 2;  // which has no interval
    alike += one_round || f.speed_per_device(*row).interval.high >= f.speed_per_device(best).interval.low;
  }
  std::string text = fmt::format("The best layout of {} is {} ({}): {} {} per device", ranks_text(ranks), f.point(best).label(),
                                 runs_as(f.facts(best)), figure(f.speed_per_device(best)), f.speed_unit());
  if (best.mfu) text += fmt::format(", MFU {}", percent(*best.mfu));
  if (best.efficiency && f.data.baseline && *f.data.baseline != best.point) {
    const Point& baseline = f.data.points[static_cast<std::size_t>(*f.data.baseline)];
    text += fmt::format(", an efficiency of {} beside {}", percent(*best.efficiency), baseline.label());
  }
  if (others == 0) return text + "; it is the only one of that size that was measured.";
  if (others == 1)
    return text + (alike == 0
                       ? "; the other of that size is slower."
                       : "; the other of that size cannot be told from it: their intervals meet, or there is one round only.");
  if (alike == 0) return text + fmt::format("; the {} others of that size are slower.", others);
  return text +
         fmt::format(
             "; {} of the {} others of that size cannot be told from it: their intervals meet, or there is one round only.",
             alike, others);
}

std::string memory_clause(const Findings& f, const Row& best) {
  const Point& point = f.point(best);
  const double used = f.best_memory_bytes(best);
  if (!point.prediction || !(point.prediction->limit_bytes > 0) || !(used > 0)) return "";
  return fmt::format(" Its fullest rank holds {} of the {} that it may have ({}).", format_bytes(used),
                     format_bytes(point.prediction->limit_bytes), percent(used / point.prediction->limit_bytes));
}

std::string limit_sentence(const Findings& f, const Row& best) {
  const parallel::Ledger& ledger = best.ledger;
  if (!(ledger.step_ms > 0)) return "What limits it is not known: its rounds have no ledger." + memory_clause(f, best);
  const Account loss = largest_loss(ledger);
  std::string text;
  if (is_limited_by_compute(ledger)) {
    text = fmt::format("Compute limits it: {} of its step of {} ms; the largest of the rest is {}, {} ms.",
                       percent(ledger.compute_ms / ledger.step_ms), figure(ledger.step_ms), loss.name, figure(loss.ms));
  } else {
    text = fmt::format("After compute ({}), {} take{} most of its step: {} of {} ms ({}).",
                       percent(ledger.compute_ms / ledger.step_ms), loss.name, loss.name.back() == 's' ? "" : "s",
                       figure(loss.ms), figure(ledger.step_ms), percent(loss.ms / ledger.step_ms));
  }
  return text + memory_clause(f, best);
}

// A point of the same size that was not measured, predicted to be the fastest of these and faster than `best`.
struct Alternative {
  const Row* row = nullptr;
  double gain = 0;  // predicted speedup
};
Alternative unmeasured_alternative(const Findings& f, const Row& best) {
  Alternative found;
  const auto cost = f.predicted_cost(f.point(best));
  if (!cost) return found;
  for (const Row& row : f.rows) {
    const Point& point = f.point(row);
    if (f.counts(row) || point.same_as || !point.facts || point.facts->ranks != f.facts(best).ranks) continue;
    const auto other = f.predicted_cost(point);
    if (other && *cost / *other - 1 > found.gain) found = {&row, *cost / *other - 1};
  }
  return found;
}

std::string alternative_sentence(const Findings& f, const Alternative& alternative) {
  const Point& point = f.point(*alternative.row);
  const std::string faster = fmt::format("{}, predicted to be {} faster", point.label(), percent(alternative.gain));
  const bool no_memory = point.pruning == Pruning::memory || alternative.row->state == PointState::out_of_memory;
  if (!no_memory) return fmt::format("{}, was not measured: {}.", faster, f.why_not_measured(*alternative.row));
  const Prediction& predicted = *point.prediction;
  const auto peak = std::ranges::max_element(predicted.peak_bytes);
  if (peak != predicted.peak_bytes.end() && predicted.limit_bytes > 0 && *peak > predicted.limit_bytes)
    return fmt::format("More memory would: {}, needs {} and may have {}.", faster, format_bytes(*peak),
                       format_bytes(predicted.limit_bytes));
  return fmt::format("More memory would: {}, does not fit.", faster);
}

std::string change_sentence(const Findings& f, const Row& best) {
  if (const Alternative alternative = unmeasured_alternative(f, best); alternative.row != nullptr)
    return alternative_sentence(f, alternative);
  if (!(best.ledger.step_ms > 0)) return "What would change that cannot be said without a ledger.";
  if (is_limited_by_compute(best.ledger))
    return fmt::format("Only faster kernels would: without any communication or waiting the step would still be {} ms.",
                       figure(best.ledger.compute_ms));
  const Account loss = largest_loss(best.ledger);
  const auto of = [&](const Row& row) {
    const std::vector<Account> accounts = accounts_of(row.ledger);
    return std::ranges::find(accounts, loss.name, &Account::name)->ms / std::max(row.ledger.step_ms, 1e-9);
  };
  const Row* least = nullptr;
  for (const Row* row : f.measured()) {
    if (row->point == best.point || f.facts(*row).ranks != f.facts(best).ranks || !(row->ledger.step_ms > 0)) continue;
    if (least == nullptr || of(*row) < of(*least)) least = row;
  }
  std::string text =
      fmt::format("Without {} the step would be {} ms, {} faster", loss.name, figure(best.ledger.step_ms - loss.ms),
                  percent(best.ledger.step_ms / std::max(best.ledger.step_ms - loss.ms, 1e-9) - 1));
  if (least == nullptr || of(*least) > clearly_less * of(best))
    return text + "; no measured layout of that size loses a clearly smaller part to it.";
  return text + fmt::format("; {} loses only {} to it, but is {} slower as a whole.", f.point(*least).label(),
                            percent(of(*least)),
                            percent(f.speed_per_device(best).value / f.speed_per_device(*least).value - 1));
}

}  // namespace

std::vector<std::string> sentences_of(const Findings& findings) {
  const Row* best = findings.best();
  if (best == nullptr) return nothing_measured(findings);
  return {best_sentence(findings, *best), limit_sentence(findings, *best), change_sentence(findings, *best)};
}

}  // namespace plait::study
