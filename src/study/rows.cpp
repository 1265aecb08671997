#include "study/rows.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/error.h"
#include "core/parse_number.h"
#include "study/statistics.h"
#include "study/study_data.h"

namespace plait::study {
namespace {

constexpr int resamplings = 1000;
constexpr double tail = 0.025;  // outside a 95 % interval, on each side
constexpr Interval no_interval{std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};

const Point& point_of(const StudyData& data, int point) { return data.points[static_cast<std::size_t>(point)]; }

double model_flops(const Point& point) {
  return point.facts->model_flops_per_token * static_cast<double>(point.facts->tokens_per_step());
}

double fullest(const Measurement& measured, double RankMemory::* bytes) {
  double most = 0;
  for (const RankMemory& rank : measured.memory) most = std::max(most, rank.*bytes);
  return most;
}

void add_conditions(Row& row, const std::vector<const Round*>& rounds) {
  double joules = 0, tokens = 0;
  bool complete = !rounds.empty();
  std::set<std::string> reasons;
  for (const Round* round : rounds) {
    const Measurement& m = *round->measured;
    complete = complete && !m.devices.empty() && m.devices.size() == m.memory.size();  // one for each rank
    for (const DeviceConditions& device : m.devices) {
      complete = complete && device.energy_j.has_value();
      joules += device.energy_j.value_or(0);
      if (device.least_sm_clock_mhz)
        row.least_sm_clock_mhz =
            std::min(row.least_sm_clock_mhz.value_or(*device.least_sm_clock_mhz), *device.least_sm_clock_mhz);
      reasons.insert(device.throttle_reasons.begin(), device.throttle_reasons.end());
    }
    tokens += static_cast<double>(m.tokens_per_step) * static_cast<double>(m.step_ms.size());
  }
  if (complete) row.joules_per_token = joules / tokens;
  row.throttle_reasons.assign(reasons.begin(), reasons.end());
}

void add_efficiency(Row& row, const StudyData& data) {
  if (!data.baseline) return;
  const Point &point = point_of(data, row.point), &baseline = point_of(data, *data.baseline);
  // FLOPs of a step per device, relative to the baseline's.
  const double scale = (model_flops(point) / point.facts->ranks) / (model_flops(baseline) / baseline.facts->ranks);
  std::map<int, const Round*> of_baseline;
  for (const Round* round : data.measured_rounds_of(*data.baseline)) of_baseline[round->round] = round;
  std::vector<std::vector<double>> baseline_steps, steps;
  for (const Round* round : data.measured_rounds_of(row.point)) {
    const auto paired = of_baseline.find(round->round);
    if (paired == of_baseline.end()) continue;
    baseline_steps.push_back(paired->second->measured->step_ms);
    steps.push_back(round->measured->step_ms);
  }
  if (steps.empty()) return;
  if (row.point == *data.baseline) {
    row.efficiency = Estimate{1, steps.size() > 1 ? Interval{1, 1} : no_interval};
    return;
  }
  Estimate ratio = ratio_within_rounds(baseline_steps, steps, data.config.run.seed + static_cast<std::uint64_t>(row.point));
  row.efficiency = Estimate{scale * ratio.value, {scale * ratio.interval.low, scale * ratio.interval.high}};
}

Row row_of(const StudyData& data, const Point& point) {
  Row row;
  row.point = point.index;
  row.state = data.state_of(point.index);
  const std::vector<const Round*> rounds = data.measured_rounds_of(point.index);
  row.rounds = static_cast<int>(rounds.size());
  if (rounds.empty()) return row;
  const PointFacts& facts = point.facts.value();
  row.step_ms = {median(round_medians(rounds)), rounds.size() > 1 ? step_interval(rounds) : no_interval};
  const double tokens = static_cast<double>(facts.tokens_per_step()) / facts.ranks;
  const auto rate = [tokens](double milliseconds) { return 1e3 * tokens / milliseconds; };
  row.tokens_per_second_per_device = {rate(row.step_ms.value),
                                      {rate(row.step_ms.interval.high), rate(row.step_ms.interval.low)}};
  row.model_flops_per_second_per_device = facts.model_flops_per_token * row.tokens_per_second_per_device.value;
  parallel::LedgerSum ledger;
  for (const Round* round : rounds) {
    const Measurement& m = *round->measured;
    for (const parallel::Ledger& of_rank : m.ledgers) ledger.add(of_rank);
    row.planned_bytes = std::max(row.planned_bytes, fullest(m, &RankMemory::planned_bytes));
    row.allocated_bytes = std::max(row.allocated_bytes, fullest(m, &RankMemory::allocated_bytes));
    row.device_bytes = std::max(row.device_bytes, fullest(m, &RankMemory::device_bytes));
  }
  row.ledger = ledger.mean();
  row.ledger.peers.clear();
  if (row.ledger.step_ms > 0) row.bubble_fraction = row.ledger.bubble_ms / row.ledger.step_ms;
  if (const auto peak = rounds.front()->measured->peak_flops; peak && *peak > 0) {
    row.mfu = row.model_flops_per_second_per_device / *peak;
    row.hfu = facts.hardware_flops_per_token * row.tokens_per_second_per_device.value / *peak;
  }
  if (point.prediction) {
    row.prediction_error = point.prediction->step_ms / row.step_ms.value - 1;
    const double used = row.device_bytes > 0 ? row.device_bytes : row.allocated_bytes;
    const auto most = std::ranges::max_element(point.prediction->peak_bytes);
    if (used > 0 && most != point.prediction->peak_bytes.end()) row.memory_error = *most / used - 1;
  }
  add_conditions(row, rounds);
  if (data.config.study.scaling != Scaling::isoflop) add_efficiency(row, data);
  return row;
}

// The axes' number of ranks, even for a point that is left out.
int ranks_asked(const Point& point) { return point.facts ? point.facts->ranks : point.asked_ranks; }

// The smallest and largest numbers of ranks of the points that were, or could not be, measured.
std::pair<int, int> ranks_asked(const StudyData& data) {
  int least = 0, most = 0;
  for (const Point& point : data.points) {
    const bool counts = !point.pruning || point.pruning == Pruning::rule || point.pruning == Pruning::memory;
    const int ranks = ranks_asked(point);
    if (!counts || ranks < 1) continue;
    least = least == 0 ? ranks : std::min(least, ranks);
    most = std::max(most, ranks);
  }
  return {least, most};
}

// The fault of the efficiency, as a clause; "" if it is at least `wanted`.
std::string efficiency_problem(const StudyData& data, const std::vector<Row>& rows, double wanted) {
  const Row* best = nullptr;  // with the most ranks
  const auto ranks_of = [&](const Row& row) { return point_of(data, row.point).facts->ranks; };
  for (const Row& row : rows) {
    if (!row.efficiency || row.state != PointState::ok) continue;
    const bool larger = best == nullptr || ranks_of(row) > ranks_of(*best);
    if (larger || (ranks_of(row) == ranks_of(*best) && row.efficiency->value > best->efficiency->value)) best = &row;
  }
  const auto [least, most] = ranks_asked(data);
  if (best == nullptr || ranks_of(*best) < most) return fmt::format("but nothing was measured to its end on {} ranks", most);
  // A baseline of as many ranks would be compared with itself.
  if (least < most && point_of(data, data.baseline.value()).facts->ranks == most)
    return fmt::format("but nothing was measured on fewer than {} ranks to judge it by", most);
  if (best->efficiency->value >= wanted) return "";
  return fmt::format("{:.1f} % found on {} ranks ({})", 100 * best->efficiency->value, ranks_of(*best),
                     point_of(data, best->point).label());
}

}  // namespace

bool Estimate::has_interval() const { return !std::isnan(interval.low) && !std::isnan(interval.high); }

Estimate ratio_within_rounds(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b,
                             std::uint64_t seed) {
  require(!a.empty() && a.size() == b.size(), "ratio_within_rounds: both need the same rounds, at least one");
  std::vector<double> ratios;
  for (std::size_t n = 0; n < a.size(); ++n) ratios.push_back(median(a[n]) / median(b[n]));
  Estimate estimate{median(ratios), no_interval};
  if (ratios.size() < 2) return estimate;
  std::mt19937_64 random(seed);
  const auto draw = [&](const std::vector<double>& steps) {
    std::vector<double> drawn;
    for (std::size_t n = 0; n < steps.size(); ++n) drawn.push_back(steps[random() % steps.size()]);
    return median(std::move(drawn));
  };
  std::vector<double> medians;
  for (int repetition = 0; repetition < resamplings; ++repetition) {
    std::vector<double> drawn;
    for (std::size_t n = 0; n < a.size(); ++n) {
      const std::size_t round = random() % a.size();
      const double of_a = draw(a[round]);
      drawn.push_back(of_a / draw(b[round]));
    }
    medians.push_back(median(std::move(drawn)));
  }
  std::ranges::sort(medians);
  const auto cut = static_cast<std::size_t>(tail * resamplings);
  estimate.interval = {medians[cut], medians[medians.size() - 1 - cut]};
  return estimate;
}

std::vector<Row> rows_of(const StudyData& data) {
  std::vector<Row> rows;
  for (const Point& point : data.points) rows.push_back(row_of(data, point));
  return rows;
}

std::optional<double> rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  require(a.size() == b.size(), "rank_correlation: both need as many values");
  // Uses twice the ranks: the factor cancels out.
  const std::vector<int> x = doubled_ranks(a), y = doubled_ranks(b);
  const double mean = static_cast<double>(a.size()) + 1;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    const double dx = x[n] - mean, dy = y[n] - mean;
    xy += dx * dy, xx += dx * dx, yy += dy * dy;
  }
  return xx > 0 && yy > 0 ? std::optional(xy / std::sqrt(xx * yy)) : std::nullopt;
}

std::optional<double> PlannerVerdict::regret() const {
  std::optional<double> most;
  for (const Regret& r : regrets) most = std::max(most.value_or(r.regret), r.regret);
  return most;
}

PlannerVerdict planner_verdict(const StudyData& data, const std::vector<Row>& rows) {
  struct Candidate {
    int point = 0;
    double predicted = 0, measured = 0;  // seconds per model FLOP and device; measured is empty if it failed
    bool asked = false, failed = false;
  };
  // Points whose layout the planner chose, even if another point has their results.
  std::set<int> asked;
  for (const Point& point : data.points) {
    if (point.has("layout", "auto")) asked.insert(point.same_as.value_or(point.index));
  }
  std::map<std::pair<int, Coordinates>, std::vector<Candidate>> by_job;  // with its ranks
  std::vector<double> errors, predicted, measured;
  for (const Row& row : rows) {
    const Point& point = point_of(data, row.point);
    const bool failed = data.failure_of(row.point) != nullptr, was_asked = asked.contains(row.point);
    if (!point.prediction || (failed ? !was_asked : row.rounds == 0)) continue;
    const double work = model_flops(point) / point.facts->ranks;
    const Candidate candidate{row.point, point.prediction->step_ms / work, failed ? 0 : row.step_ms.value / work, was_asked,
                              failed};
    by_job[{point.facts->ranks, point.job()}].push_back(candidate);
    if (failed) continue;
    errors.push_back(std::abs(row.prediction_error.value()));
    predicted.push_back(candidate.predicted), measured.push_back(candidate.measured);
  }
  PlannerVerdict verdict;
  verdict.points = static_cast<int>(errors.size());
  if (!errors.empty()) {
    verdict.median_error = median(errors);
    verdict.worst_error = *std::ranges::max_element(errors);
    verdict.rank_correlation = rank_correlation(predicted, measured);
  }
  if (data.config.study.scaling == Scaling::isoflop) return verdict;  // each point is a different model, so there is no choice
  for (auto& [job, candidates] : by_job) {
    std::vector<Candidate> choices;
    std::ranges::copy_if(candidates, std::back_inserter(choices), &Candidate::asked);
    const bool was_asked = !choices.empty();
    if (!was_asked) choices = candidates;
    const Candidate chosen = *std::ranges::min_element(choices, {}, &Candidate::predicted);
    if (chosen.failed) {
      verdict.failed_choices.push_back({job.first, chosen.point});
      continue;
    }
    std::erase_if(candidates, [](const Candidate& c) { return c.failed; });
    if (candidates.size() < 2) continue;  // no choice
    const Candidate best = *std::ranges::min_element(candidates, {}, &Candidate::measured);
    verdict.regrets.push_back({job.first, chosen.point, best.point, was_asked, chosen.measured / best.measured - 1});
  }
  return verdict;
}

std::string failed_choice_text(const StudyData& data, const FailedChoice& failed) {
  return fmt::format("the planner's choice for {} {} failed: {} ({})", failed.ranks, failed.ranks == 1 ? "rank" : "ranks",
                     point_of(data, failed.chosen).label(), to_string(data.state_of(failed.chosen)));
}

std::vector<std::string> exceeded_study_bounds(const StudyData& data, const std::vector<Row>& rows,
                                               const PlannerVerdict& verdict) {
  const StudyBoundsConfig& bounds = data.config.study.bounds;
  std::vector<std::string> exceeded;
  const auto at_most = [&](const char* key, const std::string& bound, std::optional<double> value) {
    const auto limit = percentage(bound);
    if (limit && !value)
      exceeded.push_back(fmt::format("study.bounds.{}: {} allowed, but nothing was measured to judge it by", key, bound));
    if (limit && value && *value > *limit)
      exceeded.push_back(fmt::format("study.bounds.{}: {} allowed, {:.1f} % found", key, bound, 100 * *value));
  };
  at_most("prediction_error", bounds.prediction_error, verdict.median_error);
  if (verdict.failed_choices.empty() || verdict.regret()) at_most("regret", bounds.regret, verdict.regret());
  if (percentage(bounds.regret)) {
    for (const FailedChoice& failed : verdict.failed_choices)
      exceeded.push_back(
          fmt::format("study.bounds.regret: {} allowed, but {}", bounds.regret, failed_choice_text(data, failed)));
  }
  if (const auto wanted = percentage(bounds.efficiency)) {
    const std::string problem = efficiency_problem(data, rows, *wanted);
    if (!problem.empty())
      exceeded.push_back(fmt::format("study.bounds.efficiency: at least {} wanted, {}", bounds.efficiency, problem));
  }
  return exceeded;
}

}  // namespace plait::study
